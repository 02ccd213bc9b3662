/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that wraps the functions of the environment under one lock that is not recursive, as Firefox does. Whatever
 * libheaptap.so's secure_getenv calls must not be one of them. Run it with libheaptap.so preloaded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char* Next(const char* function, const char* name) {
  char* (*next)(const char*) = dlsym(RTLD_NEXT, function);
  pthread_mutex_lock(&lock);
  char* value = next(name);
  pthread_mutex_unlock(&lock);
  return value;
}

char* getenv(const char* name) { return Next("getenv", name); }
char* secure_getenv(const char* name) { return Next("secure_getenv", name); }

int main(void) {
  alarm(10); /* a deadlock ends the program */
  Dl_info info;
  CHECK(dladdr(dlsym(RTLD_NEXT, "secure_getenv"), &info) != 0 && strstr(info.dli_fname, "libheaptap") != NULL);
  CHECK(secure_getenv("HEAPTAP_TEST_UNSET") == NULL);
  CHECK(setenv("HEAPTAP_TEST", "set", 1) == 0 && strcmp(secure_getenv("HEAPTAP_TEST"), "set") == 0);
  CHECK(secure_getenv("HEAPTAP_TEST") == getenv("HEAPTAP_TEST"));
  CHECK(secure_getenv("HEAPTAP_TES") == NULL && secure_getenv("") == NULL);
#ifdef __GLIBC__ /* musl refuses it */
  static char odd[] = "=nameless";
  CHECK(putenv(odd) == 0 && secure_getenv("") == NULL);
#endif
  CHECK(unsetenv("HEAPTAP_TEST") == 0 && secure_getenv("HEAPTAP_TEST") == NULL);
  CHECK(clearenv() == 0 && secure_getenv("PATH") == NULL);
  return failures != 0;
}
