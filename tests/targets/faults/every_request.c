/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes every kind of request, and goes on when one is refused:
 *
 *   every_request [MOST_BYTES [SHORTAGE]]
 *
 * Blocks of 8 bytes to MOST_BYTES (64 MiB) from malloc, calloc, realloc and the aligned functions; threads that come
 * and go and leave blocks to others; a fork. Then it ends the shortage, tells refuse_call that no call is to fail any
 * more, and does all of it again. SHORTAGE, which begins before the first request unless said otherwise:
 *
 *   locked        all memory is locked, now and later
 *   keys          all keys of threads are taken; many threads come and go
 *   descriptors   no file can be opened
 *   mappings      the process has as many mappings as it may have; from after the first requests on
 *
 * Prints "refused A then B": how many requests were refused (NULL, or no thread, no child, no lock) before and after,
 * and each of them on stderr; and "resident N KiB": the most that it used. Aborts with a line if a byte is damaged,
 * calloc's memory is not zero, two blocks overlap, or errno does not say ENOMEM. Nothing here allocates but the
 * requests.
 *
 * $SAMPLE: see tests/allocator/guest/sampling.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "refuse_call.h"
#include "tests/allocator/guest/sampling.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { MOST_BLOCKS = 128, THREADS = 3, MANY = 50, STACK_BYTES = 128 << 10, WORD = sizeof(uint64_t), PAGE = 4096 };

/* Around the borders between a slab's blocks, runs and huge blocks, each for itself and a multiple. */
static const size_t sizes[] = {8, 24, 100, 1000, 4000, 10000, 32 * KIB, 40000, 200 * KIB, 2 * MIB, 17 * MIB, 64 * MIB};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
static const size_t alignments[] = {64, 4096, 256 * KIB, 2 * MIB, 64 * MIB};
enum { ALIGNMENTS = sizeof(alignments) / sizeof(alignments[0]) };

static size_t most = 64 * MIB;
static int refused;
static bool is_locked;

struct block {
  char* start;
  size_t size;
  /* No other block has it. */
  uint64_t tag;
};

/* The blocks of one thread. Static: an array on the stack of a thread might be too large. */
struct work {
  struct block blocks[MOST_BLOCKS];
  int count;
  size_t most;
  /* Of a thread: it waits while others free blocks of it. */
  sem_t waits;
  sem_t goes_on;
};

_Noreturn static void Fail(const char* what, size_t size) {
  dprintf(STDERR_FILENO, "every_request: %s: a block of %zu bytes\n", what, size);
  abort();
}

/* Whether errno says so. glibc leaves what the system says of locked memory where no arena is left. */
static bool SaysMemory(void) { return errno == ENOMEM || (is_locked && errno == EAGAIN); }

static void Refused(const char* what, size_t size) {
  dprintf(STDERR_FILENO, "every_request: refused: %s %zu\n", what, size);
  __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
}

/* Every word of small blocks. To write all of a large one would take most of the time. */
static size_t Step(size_t size) {
  if (size <= 32 * KIB) return WORD;
  return size <= MIB ? 4 * KIB : MIB;
}

static uint64_t Mark(const struct block* block, size_t offset) { return (block->tag << 32) + offset; }

static size_t LastWord(size_t size) { return size / WORD * WORD - WORD; }

static uint64_t Read(const char* from) {
  uint64_t word;
  memcpy(&word, from, WORD);
  return word;
}

static void Write(const struct block* block, size_t offset) {
  const uint64_t mark = Mark(block, offset);
  memcpy(block->start + offset, &mark, WORD);
}

static void Fill(struct block* block) {
  static uint64_t tags;
  block->tag = __atomic_add_fetch(&tags, 1, __ATOMIC_RELAXED);
  for (size_t offset = 0; offset + WORD <= block->size; offset += Step(block->size)) Write(block, offset);
  Write(block, LastWord(block->size));
}

/* Whether the first `bytes` are as Fill has left them. */
static void Check(const struct block* block, size_t bytes) {
  for (size_t offset = 0; offset + WORD <= bytes; offset += Step(block->size)) {
    if (Read(block->start + offset) != Mark(block, offset)) Fail("damaged", block->size);
  }
  const size_t last = LastWord(block->size);
  if (last + WORD <= bytes && Read(block->start + last) != Mark(block, last)) Fail("damaged at its end", block->size);
}

static void CheckZero(const char* start, size_t size) {
  const size_t step = size <= MIB ? 512 : 64 * KIB;
  for (size_t offset = 0; offset + WORD <= size; offset += step) {
    if (Read(start + offset) != 0) Fail("calloc's memory is not zero", size);
  }
  if (Read(start + LastWord(size)) != 0) Fail("calloc's memory is not zero", size);
}

/* A new block, or none. */
static void Keep(struct work* work, const char* what, char* start, size_t size) {
  if (start == NULL) {
    if (!SaysMemory()) Fail("refused, and errno is not ENOMEM", size);
    return Refused(what, size);
  }
  if (malloc_usable_size(start) < size) Fail("less usable than requested", size);
  for (const struct block* other = work->blocks; other < work->blocks + work->count; other++) {
    if (start < other->start + other->size && other->start < start + size) Fail("overlaps another", size);
  }
  if (work->count == MOST_BLOCKS) abort();
  struct block* block = &work->blocks[work->count++];
  *block = (struct block){start, size, 0};
  Fill(block);
}

static void* Zeroed(size_t size) {
  void* start = calloc(1, size);
  if (start != NULL) CheckZero(start, size);
  return start;
}

static void* Aligned(size_t alignment, size_t size) {
  void* start = NULL;
  const int error = posix_memalign(&start, alignment, size);
  if (error != 0) errno = error;
  if (((uintptr_t)start & (alignment - 1)) != 0) Fail("not aligned", size);
  return start;
}

static void Resize(struct block* block, size_t size) {
  Check(block, block->size);
  errno = 0;
  char* start = realloc(block->start, size);
  if (start == NULL) {
    if (!SaysMemory()) Fail("realloc is refused, and errno is not ENOMEM", size);
    Check(block, block->size);
    return Refused("realloc to", size);
  }
  block->start = start;
  Check(block, size < block->size ? size : block->size);
  block->size = size;
  Fill(block);
}

/* A page of a large block has a property that other blocks do not have. */
static void Free(struct block* block) {
  const size_t large = 200 * KIB;
  Check(block, block->size);
  char* page = (char*)(((uintptr_t)block->start + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
  if (block->size >= large) madvise(page, PAGE, MADV_DONTDUMP);
  free(block->start);
  block->start = NULL;
}

static void FreeFrom(struct work* work, int first) {
  for (int i = first; i < work->count; i++) Free(&work->blocks[i]);
  work->count = first;
}

/* Every other one; the last blocks take the places. */
static void FreeHalf(struct work* work) {
  for (int i = 0; i < work->count; i++) {
    Free(&work->blocks[i]);
    work->blocks[i] = work->blocks[--work->count];
  }
}

static void RequestEach(struct work* work) {
  for (int i = 0; i < SIZES && sizes[i] <= work->most; i++) {
    errno = 0;
    Keep(work, "malloc", malloc(sizes[i]), sizes[i]);
    errno = 0;
    Keep(work, "calloc", Zeroed(sizes[i]), sizes[i]);
  }
  for (int i = 0; i < ALIGNMENTS && 3 * alignments[i] <= work->most; i++) {
    errno = 0;
    Keep(work, "posix_memalign", Aligned(alignments[i], alignments[i] / 2), alignments[i] / 2);
    errno = 0;
    Keep(work, "aligned_alloc", aligned_alloc(64, 3 * alignments[i]), 3 * alignments[i]);
  }
}

static void DoWork(struct work* work) {
  RequestEach(work);
  for (int i = 0; i < work->count; i++)
    Resize(&work->blocks[i], work->blocks[i].size + work->blocks[i].size / 2 + WORD);
  for (int i = 0; i < work->count; i += 2) Resize(&work->blocks[i], work->blocks[i].size / 4 + WORD);
  FreeHalf(work);
  RequestEach(work);
  for (int i = 0; i < work->count; i++) Check(&work->blocks[i], work->blocks[i].size);
}

static struct work thread_work[THREADS];
static struct work main_work;

static void* RunThread(void* opaque) {
  struct work* work = opaque;
  work->most = most < 256 * KIB ? most : 256 * KIB;
  DoWork(work);
  sem_post(&work->waits);
  sem_wait(&work->goes_on);
  RequestEach(work);
  FreeFrom(work, work->count / 2);
  return NULL;
}

static void DoThreads(void) {
  pthread_t threads[THREADS];
  bool runs[THREADS];
  pthread_attr_t small_stacks;
  pthread_attr_init(&small_stacks);
  /* Limits of memory count the 8 MiB that a stack has by default. */
  pthread_attr_setstacksize(&small_stacks, STACK_BYTES);
  for (int i = 0; i < THREADS; i++) {
    sem_init(&thread_work[i].waits, 0, 0);
    sem_init(&thread_work[i].goes_on, 0, 0);
    runs[i] = pthread_create(&threads[i], &small_stacks, RunThread, &thread_work[i]) == 0;
    if (!runs[i]) Refused("thread", (size_t)i);
  }
  for (int i = 0; i < THREADS; i++) {
    if (runs[i]) sem_wait(&thread_work[i].waits);
    FreeFrom(&thread_work[i], thread_work[i].count / 2);
  }
  /* Also what was freed to threads that wait. */
  malloc_trim(0);
  for (int i = 0; i < THREADS; i++) {
    sem_post(&thread_work[i].goes_on);
    if (runs[i]) pthread_join(threads[i], NULL);
    FreeFrom(&thread_work[i], 0);
  }
}

static void DoFork(void) {
  const pid_t child = fork();
  if (child == 0) {
    refused = 0;
    DoThreads();
    for (int i = 0; i < main_work.count; i++) Resize(&main_work.blocks[i], main_work.blocks[i].size + 100);
    FreeFrom(&main_work, 0);
    main_work.most = most < 2 * MIB ? most : 2 * MIB;
    DoWork(&main_work);
    _exit(refused < UINT8_MAX ? refused : UINT8_MAX);
  }
  int status = -1;
  if (child < 0) return Refused("fork", 0);
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) Fail("the child did not end well", 0);
  __atomic_fetch_add(&refused, WEXITSTATUS(status), __ATOMIC_RELAXED);
}

static void DoAll(void) {
  main_work.most = most;
  DoWork(&main_work);
  DoThreads();
  DoFork();
  FreeFrom(&main_work, 0);
}

/* More than a process may have, in a machine with other settings: reading them needs /proc. */
enum { MOST_MAPPINGS = 1 << 18 };

static char* area;

/* Pages of other rights in turn, each a mapping. */
static void TakeMappings(void) {
  area = mmap(NULL, (size_t)MOST_MAPPINGS * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  char* page = area + PAGE;
  while (page < area + (size_t)MOST_MAPPINGS * PAGE && mprotect(page, PAGE, PROT_NONE) == 0) page += (size_t)2 * PAGE;
  /* The last one, which a split of the area in two would have exceeded. */
  mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static bool Is(const char* shortage, const char* name) { return strcmp(shortage, name) == 0; }

static void BeginEarly(const char* shortage) {
  const struct rlimit none = {0, 0};
  pthread_key_t key;
  is_locked = Is(shortage, "locked");
  if (is_locked && mlockall(MCL_CURRENT | MCL_FUTURE) != 0) Refused("mlockall", 0);
  if (Is(shortage, "descriptors")) setrlimit(RLIMIT_NOFILE, &none);
  while (Is(shortage, "keys") && pthread_key_create(&key, NULL) == 0) continue;
}

int main(int argc, char** argv) {
  const char* shortage = argc > 2 ? argv[2] : "";
  if (argc > 1) most = strtoul(argv[1], NULL, 0);
  /* A huge page for each mark would take most of the time. */
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  BeginEarly(shortage);
  /* The control block is complete when the library has started. */
  free(malloc(1));
  SwitchSamplingOn();
  free(malloc(MIB));
  prctl(REFUSE_FROM_NOW);
  static struct work warm = {.most = 64 * MIB};
  if (Is(shortage, "mappings")) {
    RequestEach(&warm);
    TakeMappings();
    FreeFrom(&warm, 0);
  }
  for (int i = 0; Is(shortage, "keys") && i < MANY; i++) DoThreads();
  DoAll();
  const int first = refused;
  prctl(REFUSE_NO_MORE);
  if (area != NULL) munmap(area, (size_t)MOST_MAPPINGS * PAGE);
  refused = 0;
  DoAll();
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  dprintf(STDOUT_FILENO, "refused %d then %d\nresident %ld KiB\n", first, refused, used.ru_maxrss);
  return 0;
}
