/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The benchmark of stacks: depth FRAMES COUNT makes COUNT malloc+free pairs of 64 bytes under FRAMES frames of its own
 * and prints the nanoseconds per pair; with a third argument `mapping`, it maps and unmaps a page before each pair,
 * which counts too. depth FRAMES COUNT backtrace walks the stack COUNT times instead, like jemalloc
 * (prof_backtrace_impl in src/prof_sys.c), and prints the nanoseconds per walk and the number of frames found,
 * including its own.
 *
 * The first frame is the outermost one, for unwind tables and frame pointers alike; the last one is the loop's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unwind.h>

#define NOINLINE __attribute__((noinline, noclone))

#define MAX_FRAMES 128
#define WARM_UP 1000

struct work;
typedef void function(struct work* work);

struct work {
  function** path; /* to the loop, which is the last */
  long count;
  double nanoseconds; /* each */
  unsigned found;     /* frames, by `backtrace` */
};

/* Calls first(work) from an outermost frame. */
void begin(struct work* work, function* first);
__asm__(
    ".type begin, @function\n"
    "begin:\n"
    ".cfi_startproc\n"
    ".cfi_undefined rip\n"
    "  push %rbp\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  xor %ebp, %ebp\n"
    "  call *%rsi\n"
    "  pop %rbp\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  ret\n"
    ".cfi_endproc\n"
    ".size begin, . - begin\n");

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static inline __attribute__((always_inline)) void pair(void) {
  void* volatile block = malloc(64);
  free(block);
}

struct trace {
  void* frames[MAX_FRAMES];
  unsigned count;
};

static _Unwind_Reason_Code add_frame(struct _Unwind_Context* context, void* argument) {
  struct trace* trace = argument;
  void* address = (void*)_Unwind_GetIP(context);
  if (address == NULL) return _URC_END_OF_STACK;
  trace->frames[trace->count++] = address;
  return trace->count == MAX_FRAMES ? _URC_END_OF_STACK : _URC_NO_REASON;
}

NOINLINE unsigned backtrace(void) {
  struct trace trace;
  trace.count = 0;
  _Unwind_Backtrace(add_frame, &trace);
  return trace.count;
}

/* Separate loops, each with a single task. */
NOINLINE void pairs(struct work* work) {
  /* The first allocations map memory and, in some allocators, load the unwinder. */
  for (long i = 0; i < WARM_UP; i++) pair();
  double begun = now();
  for (long i = 0; i < work->count; i++) pair();
  work->nanoseconds = (now() - begun) / (double)work->count;
}

static inline __attribute__((always_inline)) void change_mappings(void) {
  munmap(mmap(NULL, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1);
}

NOINLINE void pairs_between_mappings(struct work* work) {
  for (long i = 0; i < WARM_UP; i++) pair();
  double begun = now();
  for (long i = 0; i < work->count; i++) {
    change_mappings();
    pair();
  }
  work->nanoseconds = (now() - begun) / (double)work->count;
}

NOINLINE void backtraces(struct work* work) {
  for (long i = 0; i < WARM_UP; i++) work->found = backtrace();
  double begun = now();
  for (long i = 0; i < work->count; i++) work->found = backtrace();
  work->nanoseconds = (now() - begun) / (double)work->count;
}

/* Frames of 32 to 176 bytes, with a return address each: step_<tens>_<ones>() calls the next of the path. */
#define STEP(tens, ones)                                  \
  NOINLINE void step_##tens##_##ones(struct work* work) { \
    char room[1 + 16 * ones];                             \
    __asm__ volatile("" : "=m"(room));                    \
    (*++work->path)(work);                                \
    /* A tail call would have no frame. */                \
    __asm__ volatile("" : : "m"(room));                   \
  }
#define NAME(tens, ones) step_##tens##_##ones,
#define TEN(what, tens)                                                                                           \
  what(tens, 0) what(tens, 1) what(tens, 2) what(tens, 3) what(tens, 4) what(tens, 5) what(tens, 6) what(tens, 7) \
      what(tens, 8) what(tens, 9)
/* clang-format off */
#define ALL(what)                                                                 \
  TEN(what, 0) TEN(what, 1) TEN(what, 2) TEN(what, 3) TEN(what, 4) TEN(what, 5) \
  TEN(what, 6) TEN(what, 7) TEN(what, 8) TEN(what, 9) TEN(what, 10) TEN(what, 11)
/* clang-format on */

ALL(STEP)

#define STEPS 120

int main(int argc, char** argv) {
  int walks = argc > 3 && strcmp(argv[3], "backtrace") == 0;
  int maps = argc > 3 && strcmp(argv[3], "mapping") == 0;
  function* path[STEPS + 1] = {ALL(NAME)};
  struct work work = {.path = path, .count = argc > 2 ? atol(argv[2]) : 100000};
  /* Two of the frames are those of begin() and of the loop. */
  long steps = (argc > 1 ? atol(argv[1]) : 2) - 2;
  if (steps < 0 || steps > STEPS) return 2;
  path[steps] = walks ? backtraces : maps ? pairs_between_mappings : pairs;
  begin(&work, path[0]);
  if (walks) {
    printf("%.1f %u\n", work.nanoseconds, work.found);
  } else {
    printf("%.1f\n", work.nanoseconds);
  }
  return 0;
}
