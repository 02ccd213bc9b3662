/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the options of the real libjemalloc.so.2, whatever allocator the program uses, in "NAME VALUE" lines. Loads
 * the library if the program is not linked with it. Then it prints the value of secure_getenv("HOME").
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

typedef int (*control)(const char* name, void* old_value, size_t* old_length, void* new_value, size_t new_length);

int main(void) {
  void* library = dlopen("libjemalloc.so.2", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  control mallctl = (control)dlsym(library, "mallctl");
  const char* flags[] = {
      "opt.prof",        "opt.prof_final",   "opt.prof_leak",  "opt.prof_leak_error",  "opt.prof_gdump",
      "opt.stats_print", "opt.confirm_conf", "opt.abort_conf", "opt.background_thread"};
  for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
    bool value;
    size_t length = sizeof(value);
    if (mallctl(flags[i], &value, &length, NULL, 0) != 0) return 2;
    printf("%s %s\n", flags[i], value ? "true" : "false");
  }
  const char* numbers[] = {"opt.lg_prof_interval", "opt.stats_interval"};
  for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
    ssize_t value;
    size_t length = sizeof(value);
    if (mallctl(numbers[i], &value, &length, NULL, 0) != 0) return 2;
    printf("%s %zd\n", numbers[i], value);
  }
  const char* home = secure_getenv("HOME");
  printf("HOME %s\n", home != NULL ? home : "is not told");
  return 0;
}
