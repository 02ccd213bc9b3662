/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a daemon: stops it (SIGSTOP) when it tells the service manager that it is ready.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

typedef ssize_t sendto_function(int, const void*, size_t, int, const struct sockaddr*, socklen_t);

ssize_t sendto(int fd, const void* data, size_t size, int flags, const struct sockaddr* to, socklen_t to_size) {
  static const char kReady[] = "READY=1";
  if (size == strlen(kReady) && memcmp(data, kReady, size) == 0) raise(SIGSTOP);
  sendto_function* next = (sendto_function*)dlsym(RTLD_NEXT, "sendto");
  return next(fd, data, size, flags, to, to_size);
}
