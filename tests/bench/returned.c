// SPDX-License-Identifier: Apache-2.0
//
// What goes back to the system: returned SIZE SPREAD idle|busy|asleep|trimmed SECONDS. Allocates 1 GiB of blocks of
// SIZE to SIZE + SPREAD - 1 bytes, writes them, frees them, and waits: idle, or with 1,000 pairs of malloc and free a
// second. With `asleep`, a thread allocates the blocks and sleeps from then on, and another one frees them and is busy.
// With `trimmed`, that one calls malloc_trim. Prints the resident MiB before the blocks are freed, and after SECONDS.
//
//        returned phases SIZE SPREAD NEXT_SIZE NEXT_SPREAD SECONDS
// What a change of sizes leaves: allocates 256 MiB of blocks of SIZE to SIZE + SPREAD - 1 bytes, frees 90 % of them at
// random, allocates 230 MiB of blocks of NEXT_SIZE to NEXT_SIZE + NEXT_SPREAD - 1 bytes. Prints the MiB of the blocks
// and the resident MiB.
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t kMiB = 1 << 20;
enum { kMostBlocks = 1 << 26 };

static uint64_t state = 1;

static uint64_t Next(void) {  // xorshift64: every allocator gets the same numbers
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static size_t ResidentMiB(void) {
  size_t all, resident;
  char text[100] = "";  // without stdio, which allocates
  const int file = open("/proc/self/statm", O_RDONLY);
  if (read(file, text, sizeof(text) - 1) <= 0 || sscanf(text, "%zu %zu", &all, &resident) != 2) abort();
  close(file);
  return resident * (size_t)sysconf(_SC_PAGESIZE) / kMiB;
}

// The pointers lie in a mapping of their own, so that the allocator does not see them.
static char** blocks;
static size_t count;
static size_t bytes;

static void Fill(size_t size, size_t spread, size_t until) {
  while (bytes < until && count < kMostBlocks) {
    const size_t one = size + Next() % spread;
    char* const block = malloc(one);
    if (block == NULL) abort();
    memset(block, 1, one);
    *(uint32_t*)block = (uint32_t)one;
    blocks[count++] = block;
    bytes += one;
  }
}

static void Wait(int is_busy, double seconds) {
  const size_t ticks = (size_t)(seconds * 1000);
  if (!is_busy) usleep((useconds_t)(seconds * 1e6));
  for (size_t i = 0; is_busy && i < ticks; i++) {
    void* const block = malloc(64 + Next() % 1024);
    *(volatile char*)block = 1;
    free(block);
    usleep(1000);
  }
}

static void Phases(const size_t* sizes, double seconds) {
  Fill(sizes[0], sizes[1], 256 * kMiB);
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    if (Next() % 10 == 0) {
      blocks[kept++] = blocks[i];
    } else {
      bytes -= *(uint32_t*)blocks[i];
      free(blocks[i]);
    }
  }
  count = kept;
  Fill(sizes[2], sizes[3], bytes + 230 * kMiB);
  Wait(1, seconds);
  printf("%zu %zu\n", bytes / kMiB, ResidentMiB());
}

static void* FillAndSleep(void* argument) {
  pthread_barrier_t* const barrier = ((void**)argument)[0];
  char** const argv = ((void**)argument)[1];
  Fill(strtoul(argv[1], NULL, 10), strtoul(argv[2], NULL, 10), 1024 * kMiB);
  pthread_barrier_wait(barrier);
  for (;;) pause();
  return NULL;
}

int main(int argc, char** argv) {
  const size_t pointer_bytes = kMostBlocks * sizeof(char*);
  blocks = mmap(NULL, pointer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (blocks == MAP_FAILED) return 1;
  if (argc == 7 && strcmp(argv[1], "phases") == 0) {
    size_t sizes[4];
    for (int i = 0; i < 4; i++) sizes[i] = strtoul(argv[2 + i], NULL, 10);
    Phases(sizes, strtod(argv[6], NULL));
    return 0;
  }
  if (argc != 5) {
    fprintf(stderr,
            "usage: returned SIZE SPREAD idle|busy|asleep|trimmed SECONDS, or returned phases SIZE SPREAD "
            "NEXT_SIZE NEXT_SPREAD SECONDS\n");
    return 2;
  }
  const int is_trimmed = strcmp(argv[3], "trimmed") == 0;
  if (is_trimmed || strcmp(argv[3], "asleep") == 0) {
    pthread_barrier_t barrier;
    pthread_t thread;
    void* const arguments[] = {&barrier, argv};
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, FillAndSleep, (void*)arguments);
    pthread_barrier_wait(&barrier);
  } else {
    Fill(strtoul(argv[1], NULL, 10), strtoul(argv[2], NULL, 10), 1024 * kMiB);
  }
  const size_t full = ResidentMiB();
  for (size_t i = 0; i < count; i++) free(blocks[i]);
  munmap(blocks, pointer_bytes);
  if (is_trimmed) malloc_trim(0);
  Wait(strcmp(argv[3], "idle") != 0, strtod(argv[4], NULL));
  printf("%zu %zu\n", full, ResidentMiB());
  return 0;
}
