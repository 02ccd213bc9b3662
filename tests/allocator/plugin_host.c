/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A C program that knows nothing of C++: it opens a plugin and returns what the plugin's function does.
 *
 *   plugin_host PLUGIN [global|namespace]
 *
 * global: what is opened later finds the plugin's names. namespace: the plugin has all its libraries for itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) return 2;
  const char* way = argc == 3 ? argv[2] : "local";
  void* plugin = strcmp(way, "namespace") == 0
                     ? dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW)
                     : dlopen(argv[1], RTLD_NOW | (strcmp(way, "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
  if (plugin == NULL) {
    fprintf(stderr, "plugin_host: %s\n", dlerror());
    return 2;
  }
  int (*function)(void) = (int (*)(void))dlsym(plugin, "plugin");
  return function();
}
