/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program in C may expect of malloc and its relatives, checked from the program's side: run it with
 * libheaptap.so preloaded. With `short` it forks a few times only; with `sizes` it prints usable sizes instead, to be
 * compared with jemalloc's; with `fail NAME` it calls the function of that name for more than there is; with `clock` it
 * is killed if the allocator reads the clock by a system call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* The compiler knows malloc too well: it must not see through these. */
static void* volatile sink;
static volatile size_t huge_size = SIZE_MAX;

static void* Symbol(const char* name) {
  void* symbol = dlsym(RTLD_DEFAULT, name);
  Dl_info info;
  if (symbol == NULL || dladdr(symbol, &info) == 0 || strstr(info.dli_fname, "libheaptap") == NULL) {
    failures++;
    fprintf(stderr, "%s is not heaptap's\n", name);
  }
  return symbol;
}

static void Symbols(void) {
  const char* names[] = {
      "malloc", "free", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc", "posix_memalign", "valloc",
      "pvalloc", "malloc_usable_size", "malloc_trim", "mallinfo", "mallinfo2", "mallopt", "malloc_stats", "malloc_info",
      "cfree", "free_sized", "free_aligned_sized", "__libc_malloc", "__libc_calloc", "__libc_realloc", "__libc_free",
      "__libc_memalign", "__libc_valloc", "__libc_pvalloc", "__posix_memalign", "mallctl", "heaptap_control",
      "heaptap_waits", "mallocx", "rallocx", "xallocx", "sallocx", "dallocx", "sdallocx", "nallocx",
      /* what is not an allocator's */
      "secure_getenv", "dlopen", "dlmopen"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) Symbol(names[i]);
  /* A plugin in C++ brings its operators, which may be its own. */
  CHECK(dlsym(RTLD_DEFAULT, "_Znwm") == NULL && dlsym(RTLD_DEFAULT, "_ZdlPv") == NULL);
}

static void Basics(void) {
  CHECK((sink = malloc(0)) != NULL);
  CHECK(malloc_usable_size(sink) == 8);
  free(sink);
  CHECK((sink = calloc(0, 10)) != NULL);
  free(sink);
  CHECK((sink = realloc(NULL, 0)) != NULL);
  CHECK(realloc(sink, 0) == NULL);
  free(NULL);
  CHECK(malloc_usable_size(NULL) == 0);
  errno = 0;
  CHECK((sink = malloc(huge_size)) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK((sink = calloc(huge_size, 2)) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK((sink = reallocarray(NULL, huge_size, 2)) == NULL && errno == ENOMEM);
#ifdef __GLIBC__ /* what musl does not declare */
  errno = 0;
  CHECK((sink = pvalloc(huge_size)) == NULL && errno == ENOMEM);
#endif
  char* zero = calloc(1000, 1000);
  int clean = 1;
  for (int i = 0; i < 1000000; i++) clean &= zero[i] == 0;
  CHECK(clean);
  errno = 5;
  free(zero);
  CHECK(errno == 5);
}

static void Alignment(void) {
  for (size_t alignment = 8; alignment <= (64 << 20); alignment *= 2) {
    for (size_t size = 0; size < 100000; size = size * 3 + 1) {
      void* pointer = NULL;
      CHECK(posix_memalign(&pointer, alignment, size) == 0);
      CHECK(pointer != NULL && (uintptr_t)pointer % alignment == 0 && malloc_usable_size(pointer) >= size);
      memset(pointer, 1, size);
      free(pointer);
      pointer = aligned_alloc(alignment, size);
      CHECK(pointer != NULL && (uintptr_t)pointer % alignment == 0);
      free(pointer);
      pointer = memalign(alignment, size);
      CHECK(pointer != NULL && (uintptr_t)pointer % alignment == 0);
      pointer = realloc(pointer, size + 1);
      CHECK(pointer != NULL && malloc_usable_size(pointer) >= size + 1);
      free(pointer);
    }
  }
  void* untouched = &failures;
  void* pointer = untouched;
  CHECK(posix_memalign(&pointer, 3, 10) == EINVAL && pointer == untouched);
  CHECK(posix_memalign(&pointer, 4, 10) == EINVAL);
  CHECK(posix_memalign(&pointer, 0, 10) == EINVAL);
  errno = 77;
  CHECK(posix_memalign(&pointer, 64, huge_size) == ENOMEM && errno == 77 && pointer == untouched);
  pointer = valloc(1);
  CHECK((uintptr_t)pointer % 4096 == 0);
  free(pointer);
#ifdef __GLIBC__
  pointer = pvalloc(1);
  CHECK((uintptr_t)pointer % 4096 == 0 && malloc_usable_size(pointer) >= 4096);
  free(pointer);
#endif
}

#if defined __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 33)
#define HAS_MALLINFO2
#endif
#endif

#ifdef HAS_MALLINFO2
static void Information(void) {
  sink = malloc(1 << 20);
  struct mallinfo2 info = mallinfo2();
  CHECK(info.arena >= info.uordblks && info.uordblks >= 1 << 20 && info.hblkhd >= 1 << 20);
  CHECK(mallinfo().uordblks > 0);
  CHECK(mallopt(M_ARENA_MAX, 1) == 1);
  FILE* file = tmpfile();
  CHECK(malloc_info(0, file) == 0);
  rewind(file);
  char line[100] = "";
  CHECK(fgets(line, sizeof(line), file) != NULL && strncmp(line, "<malloc", 7) == 0);
  fclose(file);
  errno = 0;
  CHECK(malloc_info(1, stderr) == -1 && errno == EINVAL);
  memset(sink, 1, 1 << 20);
  free(sink);
  CHECK(malloc_trim(0) == 1);
}
#else
static void Information(void) {}
#endif

static pthread_key_t keys[40];

static void Destructor(void* argument) {
  free(argument);
  for (int i = 0; i < 40; i++) {
    if (pthread_getspecific(keys[i]) == NULL)
      pthread_setspecific(keys[i], strdup("again and again until libc gives up"));
  }
}

static void* LeavesThings(void* argument) {
  for (int i = 0; i < 40; i++) pthread_setspecific(keys[i], malloc(100));
  return argument;
}

static void ThreadExit(void) {
  for (int i = 0; i < 40; i++) CHECK(pthread_key_create(&keys[i], Destructor) == 0);
  for (int i = 0; i < 200; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, LeavesThings, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
}

static volatile int stop;

static void* Churns(void* argument) {
  void* live[64] = {0};
  for (unsigned i = 0; !stop; i++) {
    free(live[i % 64]);
    live[i % 64] = malloc(i * 37 % 70000);
  }
  for (int i = 0; i < 64; i++) free(live[i]);
  return argument;
}

static void ForkWithThreads(int forks) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, Churns, NULL);
  for (int i = 0; i < forks; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      alarm(10);
      for (unsigned n = 0; n < 3000; n++) free(malloc(n * 17 % 70000));
      pthread_t thread;
      stop = 1;
      if (pthread_create(&thread, NULL, Churns, NULL) != 0 || pthread_join(thread, NULL) != 0) _exit(1);
      _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK(status == 0);
  }
  stop = 1;
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static void PrintUsableSizes(void) {
  for (size_t size = 0; size < 40 << 20; size += 1 + size / 64) {
    sink = malloc(size);
    printf("%zu %zu", size, malloc_usable_size(sink));
    sink = realloc(sink, size / 2 + 1);
    printf(" %zu", malloc_usable_size(sink));
    free(sink);
    for (size_t alignment = 8; alignment <= 1 << 20; alignment *= 2) {
      sink = memalign(alignment, size);
      printf(" %zu", malloc_usable_size(sink));
      free(sink);
    }
    printf("\n");
  }
}

/* An allocation that cannot be, by the function of that name. */
static void Fail(const char* name) {
  void* (*allocate)(size_t, int) = Symbol("mallocx");
  void* (*reallocate)(void*, size_t, int) = Symbol("rallocx");
  if (strcmp(name, "malloc") == 0) sink = malloc(huge_size);
  if (strcmp(name, "calloc") == 0) sink = calloc(huge_size, 2);
  if (strcmp(name, "realloc") == 0) sink = realloc(malloc(1), huge_size);
  if (strcmp(name, "reallocarray") == 0) sink = reallocarray(NULL, huge_size, 2);
  if (strcmp(name, "memalign") == 0) sink = memalign(64, huge_size);
  if (strcmp(name, "aligned_alloc") == 0) sink = aligned_alloc(64, huge_size);
  if (strcmp(name, "posix_memalign") == 0) CHECK(posix_memalign((void**)&sink, 64, huge_size) == ENOMEM);
  if (strcmp(name, "valloc") == 0) sink = valloc(huge_size);
#ifdef __GLIBC__
  if (strcmp(name, "pvalloc") == 0) sink = pvalloc(huge_size);
#endif
  if (strcmp(name, "mallocx") == 0) sink = allocate(huge_size, 0);
  if (strcmp(name, "rallocx") == 0) sink = reallocate(malloc(1), huge_size, 0);
}

static void KillAtClock(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Blocks of all kinds come, change and go. */
static void WorkWithoutClock(void) {
  enum { kBlocks = 256, kSteps = 60000, kLargest = 210000 };
  static void* blocks[kBlocks];
  uint32_t random = 1;
  KillAtClock();
  for (int i = 0; i < kSteps; i++) {
    random = random * 1664525 + 1013904223;
    void** block = &blocks[random >> 24];
    *block = realloc(*block, 1 + (random >> 4) % kLargest);
    free(*block);
    *block = malloc(1 + (random >> 8) % kLargest);
  }
  for (int i = 0; i < kBlocks; i++) free(blocks[i]);
}

int main(int argc, char** argv) {
  if (argc == 3) {
    Fail(argv[2]);
    return failures;
  }
  if (argc == 2 && strcmp(argv[1], "sizes") == 0) {
    PrintUsableSizes();
    return 0;
  }
  if (argc == 2 && strcmp(argv[1], "clock") == 0) {
    WorkWithoutClock();
    return failures;
  }
  Symbols();
  Basics();
  Alignment();
  Information();
  ThreadExit();
  ForkWithThreads(argc == 2 ? 5 : 100);
  if (failures == 0) printf("behaviour: ok\n");
  return failures != 0;
}
