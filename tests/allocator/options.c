/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that sets options of its own and takes the messages itself; tests/allocator/preload runs it. It ends with
 * status 1 if the messages of confirm_conf do not tell of both strings, or mallctl does not.
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

int mallctl(const char*, void*, size_t*, void*, size_t);
int mallctlnametomib(const char*, size_t*, size_t*);
int mallctlbymib(const size_t*, size_t, void*, size_t*, void*, size_t);

static int MallctlTells(void) {
  const char* text = NULL;
  size_t rate = 0;
  size_t length = sizeof(text);
  size_t mib[2];
  size_t mib_length = 2;
  return mallctl("opt.malloc_conf.global_var", &text, &length, NULL, 0) == 0 && text == malloc_conf &&
         mallctl("opt.malloc_conf.global_var_2_conf_harder", &text, &length, NULL, 0) == 0 &&
         text == malloc_conf_2_conf_harder && mallctlnametomib("opt.lg_prof_sample", mib, &mib_length) == 0 &&
         mallctlbymib(mib, mib_length, &rate, &length, NULL, 0) == 0 && rate == 7;
}

int main(void) {
  free(malloc(10));
  fputs(messages, stdout);
  int program = strstr(messages, "-- Set conf value: lg_prof_sample:7\n") != NULL;
  int harder = strstr(messages, "-- Set conf value: prof_prefix:harder\n") != NULL;
  return program && harder && MallctlTells() ? 0 : 1;
}
