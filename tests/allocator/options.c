/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that sets options of its own and takes the messages itself; tests/allocator/preload runs it. It ends with
 * status 1 if the messages of confirm_conf do not tell of both strings.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char* malloc_conf = "confirm_conf:true,lg_prof_sample:7";
const char* malloc_conf_2_conf_harder = "prof_prefix:harder";

static char messages[4096];

static void Keep(void* opaque, const char* text) {
  if (opaque == NULL) strncat(messages, text, sizeof(messages) - strlen(messages) - 1);
}

void (*malloc_message)(void*, const char*) = Keep;

int main(void) {
  free(malloc(10));
  fputs(messages, stdout);
  int program = strstr(messages, "-- Set conf value: lg_prof_sample:7\n") != NULL;
  int harder = strstr(messages, "-- Set conf value: prof_prefix:harder\n") != NULL;
  return program && harder ? 0 : 1;
}
