/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that opens plugins which only its own RUNPATH, and its own $ORIGIN, lead to: libc has to see that it is the
 * one who calls. Not by tail calls, therefore.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

void* open_by_runpath(int mode) { return dlopen("deepbind_plugin.so", mode); }
void* open_by_origin(int mode) { return dlopen("$ORIGIN/plugins/deepbind_plugin.so", mode); }
void* open_in_space(Lmid_t space, int mode) { return dlmopen(space, "deepbind_plugin.so", mode); }
