/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a collector: stops it (SIGSTOP) the first time that it makes the call that STOP_AT names, as
 * CALL:TEXT.
 *
 *   linkat:TEXT   after a file has got a name that contains TEXT
 *   opendir:TEXT  before it reads a folder whose path ends with TEXT
 *   sendto:TEXT   before it sends this text, such as READY=1 to the service manager
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef int linkat_function(int, const char*, int, const char*, int);
typedef DIR* opendir_function(const char*);
typedef ssize_t sendto_function(int, const void*, size_t, int, const struct sockaddr*, socklen_t);

/* The text, or NULL if STOP_AT names another call. */
static const char* text_for(const char* call) {
  const char* const stop_at = getenv("STOP_AT");
  const size_t size = strlen(call);
  return stop_at != NULL && strncmp(stop_at, call, size) == 0 && stop_at[size] == ':' ? stop_at + size + 1 : NULL;
}

static void stop_once(void) {
  static atomic_flag has_stopped = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&has_stopped)) raise(SIGSTOP);
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  linkat_function* const next = (linkat_function*)dlsym(RTLD_NEXT, "linkat");
  const int result = next(from_folder, from, to_folder, to, flags);
  const char* const text = text_for("linkat");
  if (result == 0 && text != NULL && strstr(to, text) != NULL) stop_once();
  return result;
}

DIR* opendir(const char* path) {
  const char* const text = text_for("opendir");
  if (text != NULL && strlen(path) >= strlen(text) && strcmp(path + strlen(path) - strlen(text), text) == 0)
    stop_once();
  opendir_function* const next = (opendir_function*)dlsym(RTLD_NEXT, "opendir");
  return next(path);
}

ssize_t sendto(int fd, const void* data, size_t size, int flags, const struct sockaddr* to, socklen_t to_size) {
  const char* const text = text_for("sendto");
  if (text != NULL && size == strlen(text) && memcmp(data, text, size) == 0) stop_once();
  sendto_function* const next = (sendto_function*)dlsym(RTLD_NEXT, "sendto");
  return next(fd, data, size, flags, to, to_size);
}
