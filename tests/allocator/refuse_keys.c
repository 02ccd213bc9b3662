/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded behind the allocator: the process has no key of thread-specific data left. */
#include <errno.h>
#include <pthread.h>

int pthread_key_create(pthread_key_t* key, void (*destructor)(void*)) {
  (void)key;
  (void)destructor;
  return EAGAIN;
}
