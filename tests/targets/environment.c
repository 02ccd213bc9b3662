/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the value of secure_getenv("HOME").
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  const char* home = secure_getenv("HOME");
  printf("HOME %s\n", home != NULL ? home : "is not told");
  free(malloc(1));
  return 0;
}
