// SPDX-License-Identifier: Apache-2.0
//
// A library to preload after an allocator. write_statistics writes the allocator's figures (malloc_stats_print as JSON)
// and the kernel's (/proc/self/smaps and smaps_rollup) to the folder STATISTICS_FOLDER: <pid>.json, <pid>.smaps,
// <pid>.smaps_rollup. It is called when the process exits, if STATISTICS_AT_EXIT is set. It allocates nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*print_function)(void (*write)(void* opaque, const char* text), void* opaque, const char* options);

static int open_output(const char* folder, const char* kind) {
  char path[512];
  snprintf(path, sizeof(path), "%s/%d.%s", folder, getpid(), kind);
  return open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
}

static void put(int output, const char* text, size_t length) {
  while (length != 0) {
    ssize_t written = write(output, text, length);
    if (written <= 0) abort();
    text += written;
    length -= (size_t)written;
  }
}

static void write_text(void* opaque, const char* text) { put(*(int*)opaque, text, strlen(text)); }

static void copy(const char* folder, const char* kind) {
  static char buffer[1 << 16];
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/%s", kind);
  int input = open(path, O_RDONLY | O_CLOEXEC);
  int output = open_output(folder, kind);
  ssize_t got;
  while ((got = read(input, buffer, sizeof(buffer))) > 0) put(output, buffer, (size_t)got);
  close(input);
  close(output);
}

// Each call overwrites the last one's files.
void write_statistics(void) {
  const char* folder = getenv("STATISTICS_FOLDER");
  print_function print = (print_function)dlsym(RTLD_DEFAULT, "malloc_stats_print");
  if (folder == NULL || print == NULL) return;
  int output = open_output(folder, "json");
  print(write_text, &output, "J");
  close(output);
  copy(folder, "smaps_rollup");
  copy(folder, "smaps");
}

// Before the destructors of the libraries that the program uses.
__attribute__((destructor)) static void finish(void) {
  if (getenv("STATISTICS_AT_EXIT") != NULL) write_statistics();
}
