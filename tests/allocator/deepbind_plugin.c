/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is opened with RTLD_DEEPBIND (deepbind_host.c). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The file that its malloc is in, without its folder. */
const char* whose_malloc(void) {
  Dl_info info;
  if (dladdr((void*)malloc, &info) == 0) return "?";
  return strrchr(info.dli_fname, '/') + 1;
}

void* give(void) { return malloc(100); }
void take(void* block) { free(block); }
