/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plugins that are opened with RTLD_DEEPBIND, by a library that is not where they are.
 *
 *   deepbind_host FILE    FILE: whose malloc a plugin in the program's own namespace is to have
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void* open_by_runpath(int mode);
extern void* open_by_origin(int mode);
extern void* open_in_space(Lmid_t space, int mode);

static const int kMode = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
static int failures;

static void Check(int condition, const char* what) {
  if (condition) return;
  failures++;
  const char* error = dlerror();
  fprintf(stderr, "deepbind_host: %s: %s\n", what, error != NULL ? error : "");
}

static void CheckMalloc(void* plugin, const char* file, const char* what) {
  Check(plugin != NULL, what);
  if (plugin == NULL) return;
  const char* (*whose_malloc)(void) = (const char* (*)(void))dlsym(plugin, "whose_malloc");
  Check(strcmp(whose_malloc(), file) == 0, whose_malloc());
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  void* plugin = open_by_runpath(kMode);
  CheckMalloc(plugin, argv[1], "by RUNPATH");
  Check(dlopen("deepbind_plugin.so", kMode) == plugin, "a library that is open has its name");
  CheckMalloc(open_by_origin(kMode), argv[1], "by $ORIGIN");
  CheckMalloc(open_in_space(LM_ID_BASE, kMode), argv[1], "by RUNPATH, in the program's namespace");
  CheckMalloc(open_in_space(LM_ID_NEWLM, kMode), "libc.so.6", "by RUNPATH, in a new namespace");
  Check(open_by_runpath(0) == NULL && strstr(dlerror(), "invalid mode") != NULL, "an invalid mode");
  Check(dlopen("deepbind_none.so", kMode) == NULL && strstr(dlerror(), "deepbind_none.so") != NULL, "no such library");
  Check(dlopen(NULL, kMode) != NULL, "the program itself");
  if (failures != 0) return 1;

  void* (*give)(void) = (void* (*)(void))dlsym(plugin, "give");
  void (*take)(void*) = (void (*)(void*))dlsym(plugin, "take");
  for (int i = 0; i < 1000; i++) {
    free(give());
    take(malloc(100));
  }
  return 0;
}
