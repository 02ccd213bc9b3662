/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that holds blocks of many call paths: busy_paths BITS CHANGES [PATHS]. Each of the 2^BITS ways to call
 * go_left() and go_right() BITS times, or of the first PATHS of them, holds one block of 4 KiB; every second, CHANGES
 * of them hold another block, or one more or less. For each line of its standard input, the name of a file, it asks for
 * a dump of itself (prof.dump), and prints a line when that is done. Ends when its standard input ends.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))

enum { kBlockBytes = 4096, kMostBlocks = 4, kSecond = 1000, kMostName = 4096 };

/* Of the preloaded library. */
__attribute__((weak)) int mallctl(const char* name, void* old, size_t* old_size, void* value, size_t size);

struct held {
  void* blocks[kMostBlocks];
  int count;
};
static struct held* all;
static unsigned long changes;

void go_left(unsigned long path, int depth, struct held* held);
void go_right(unsigned long path, int depth, struct held* held);

NOINLINE void descend(unsigned long path, int depth, struct held* held) {
  if (depth == 0) {
    held->blocks[held->count++] = malloc(kBlockBytes);
  } else if (path & 1) {
    go_right(path >> 1, depth - 1, held);
  } else {
    go_left(path >> 1, depth - 1, held);
  }
}

NOINLINE void go_left(unsigned long path, int depth, struct held* held) { descend(path, depth, held); }
NOINLINE void go_right(unsigned long path, int depth, struct held* held) { descend(path, depth, held); }

/* Returns 0 at the end of the input. */
static int dump_itself(void) {
  char line[kMostName];
  if (fgets(line, sizeof(line), stdin) == NULL) return 0;
  line[strcspn(line, "\n")] = '\0';
  const char* name = line;
  const int error = mallctl != NULL ? mallctl("prof.dump", NULL, NULL, &name, sizeof(name)) : -1;
  printf("%s\n", error == 0 ? "done" : "failed");
  fflush(stdout);
  return 1;
}

static void change(unsigned long count, unsigned long paths, int bits) {
  for (unsigned long i = 0; i < count; i++) {
    const unsigned long path = random() % paths;
    struct held* held = &all[path];
    changes++;
    if (held->count == kMostBlocks || (held->count > 0 && (changes & 1) != 0)) {
      free(held->blocks[--held->count]);
    } else {
      descend(path, bits, held);
    }
  }
}

int main(int argc, char** argv) {
  const int bits = argc > 1 ? atoi(argv[1]) : 10;
  const unsigned long each_second = argc > 2 ? strtoul(argv[2], NULL, 10) : 10;
  const unsigned long paths = argc > 3 ? strtoul(argv[3], NULL, 10) : 1ul << bits;
  all = calloc(paths, sizeof(struct held));
  for (unsigned long path = 0; path < paths; path++) descend(path, bits, &all[path]);
  struct pollfd input = {.fd = 0, .events = POLLIN};
  for (;;) {
    if (poll(&input, 1, kSecond) == 0) {
      change(each_second, paths, bits);
    } else if (!dump_itself()) {
      return 0;
    }
  }
}
