/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A C program that knows nothing of C++: it opens a plugin and returns what the plugin's function does.
 *
 *   plugin_host PLUGIN
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  void* plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) {
    fprintf(stderr, "plugin_host: %s\n", dlerror());
    return 2;
  }
  int (*function)(void) = (int (*)(void))dlsym(plugin, "plugin");
  return function();
}
