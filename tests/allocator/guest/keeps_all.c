/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps all its blocks until the end, each by a pointer in the next one. With an argument it has lost 1000 others. For
 * LeakSanitizer.
 */
#include <stdlib.h>

#include "sampling.h"

struct node {
  struct node* next;
  char contents[100];
};

static struct node* Add(struct node* list) {
  struct node* node = malloc(sizeof(*node));
  node->next = list;
  return node;
}

static struct node* kept;

int main(int argc, char** argv) {
  (void)argv;
  SwitchSamplingOn();
  /* The thread notices. */
  free(malloc(1 << 20));
  if (argc > 1) {
    SwitchSamplingOff();
    free(malloc(1 << 20));
    for (int i = 0; i < 1000; i++) *(struct node* volatile*)&kept = Add(NULL);
    kept = NULL;
    SwitchSamplingOn();
    free(malloc(1 << 20));
  }
  for (int i = 0; i < 20000; i++) kept = Add(kept);
  return 0;
}
