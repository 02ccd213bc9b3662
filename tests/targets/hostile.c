/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that lies to its collector with its own probes, independently of its allocator. One command per line on
 * stdin, one answer per line on stdout; first it prints "ready PID". It ends with status 0 at the end of its input.
 *
 *   start LIE        fires heaptap:start with such a control block                       -> "started LIE"
 *   flood LIE N      fires it N times                                                    -> "flooded N"
 *   requests N       fires heaptap:dump N times with a request that nobody can answer    -> "requested N"
 *   ask FILE         asks for a dump into such a file, or into PATH                      -> "answered ERROR", "silent"
 *   request N FILE   the same N times, every 5 ms, each with a request and descriptors of
 *                    its own, without waiting                                            -> "requested N"
 *   sample N         fires otel_memory:alloc for N blocks of 64 bytes that are not there,
 *                    other blocks each time                                              -> "sampled N"
 *   paths BITS       the same once on each of 2^BITS call paths                          -> "sampled N"
 *   map N            maps its own program N times, as code                               -> "mapped N"
 *   map_file PATH    maps a file as code                                                  -> "mapped 1"
 *   remap N PATH     touches the file and maps it as code, N times                       -> "remapped N"
 *   breed N PATH     maps N new files as code, each a copy of the file's beginning, with
 *                    as many blocks on disk as the file has bytes                        -> "bred N"
 *   spaces N M       maps its own program N times and forks M children that map it once
 *                    more and stay                                                       -> "forked M"
 *   become PROGRAM FILE REQUEST
 *                    reads the mapped file REQUEST in a thread. After a line of input, a vfork child asks for
 *                    a dump by the request in that file. After another line, the child executes the
 *                    program with FILE as its argument and an eventfd as descriptor 0.
 *   hide N PATH      forks N children that fire heaptap:start with a valid control block, and whose block
 *                    then lies in the mapped file PATH, which a thread of each is reading -> "hidden PID..."
 *   name HEX         takes these bytes for its command                                   -> "named"
 *   stall PATH       executes another program while PATH is open until the exec          -> "stalling"
 *
 * LIE: garbage, null, kernel, noncanonical, valid, absent (valid, but the page is missing, and userfaultfd gets its
 * faults). FILE: file, readonly, pipe, socket, proc, memory, sealed, device, folder, epoll, closed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "heaptap/contract.h"
#include "hostile_probes.h"

enum { REQUESTS = 64 };

static struct heaptap_dump_request requests[REQUESTS];
static uint64_t sequence;

/* Faults in the page wait for ever, if the kernel permits userfaultfd. */
static void make_absent(void* memory) {
  int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
  struct uffdio_api api = {.api = UFFD_API};
  struct uffdio_register all = {.range = {(uintptr_t)memory, PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &all) != 0) die("userfaultfd");
  if (madvise(memory, PAGE, MADV_DONTNEED) != 0) die("madvise");
}

static uintptr_t address_of(const char* lie) {
  if (strcmp(lie, "null") == 0) return 0;
  if (strcmp(lie, "kernel") == 0) return (uintptr_t)0xffffffff81000000;
  if (strcmp(lie, "noncanonical") == 0) return (uintptr_t)0x8000000000000000;
  unsigned char* memory = page();
  if (strcmp(lie, "garbage") == 0) {
    for (size_t i = 0; i < PAGE; i++) memory[i] = (unsigned char)(i * 73 + 41);
  } else {
    make_valid((struct heaptap_control*)(void*)memory);
  }
  return (uintptr_t)memory;
}

static int open_file(const char* kind) {
  char name[] = "/tmp/hostile.XXXXXX";
  int fds[2];
  int fd = -1;
  if (strcmp(kind, "file") == 0 || strcmp(kind, "readonly") == 0) {
    fd = mkstemp(name);
    int reader = open(name, O_RDONLY);
    unlink(name);
    close(strcmp(kind, "file") == 0 ? reader : fd);
    return strcmp(kind, "file") == 0 ? fd : reader;
  }
  if (strcmp(kind, "pipe") == 0) return pipe(fds) == 0 ? fds[1] : -1;
  if (strcmp(kind, "socket") == 0) return socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0 ? fds[1] : -1;
  if (strcmp(kind, "memory") == 0) return memfd_create("memory", 0);
  if (strcmp(kind, "proc") == 0) return open("/proc/self/oom_score_adj", O_RDWR);
  if (strcmp(kind, "device") == 0) return open("/dev/null", O_RDWR);
  if (strcmp(kind, "folder") == 0) return open("/", O_RDONLY);
  if (strcmp(kind, "epoll") == 0) return epoll_create1(0);
  if (strcmp(kind, "closed") == 0) return 1000;
  if (strcmp(kind, "sealed") == 0) {
    fd = memfd_create("sealed", MFD_ALLOW_SEALING);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) != 0) die("seals");
    return fd;
  }
  return open(kind, O_RDWR | O_CREAT, 0600);
}

static struct heaptap_dump_request* request(const char* kind) {
  struct heaptap_dump_request* request = &requests[sequence % REQUESTS];
  if (request->sequence != 0) {
    close(request->file_fd);
    close(request->event_fd);
  }
  *request = (struct heaptap_dump_request){
      .sequence = ++sequence, .kind = HEAPTAP_DUMP_MANUAL, .file_fd = open_file(kind), .event_fd = eventfd(0, 0)};
  fire_dump((uintptr_t)request);
  return request;
}

static void ask(const char* kind) {
  const struct heaptap_dump_request* asked = request(kind);
  struct pollfd answer = {asked->event_fd, POLLIN, 0};
  if (poll(&answer, 1, HEAPTAP_DUMP_TIMEOUT_MILLISECONDS) == 1 && asked->answered == asked->sequence) {
    printf("answered %d\n", asked->error);
  } else {
    printf("silent\n");
  }
}

static void go(unsigned long path, int depth);

__attribute__((noinline, noclone)) static void go_left(unsigned long path, int depth) { go(path, depth); }
__attribute__((noinline, noclone)) static void go_right(unsigned long path, int depth) { go(path, depth); }

__attribute__((noinline, noclone)) static void go(unsigned long path, int depth) {
  if (depth == 0) {
    fire_alloc(new_block(), BLOCK, BLOCK);
  } else if (path & 1) {
    go_right(path >> 1, depth - 1);
  } else {
    go_left(path >> 1, depth - 1);
  }
}

static void map_code(int fd) {
  if (mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) die("mmap");
}

static void map_file(const char* path, bool is_touched) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || (is_touched && futimens(fd, NULL) != 0)) die(path);
  map_code(fd);
  close(fd);
}

/* The last few stay mapped: the collector opens a file while it is mapped. */
static void breed(const char* path, long count) {
  enum { BEGINNING = 1 << 16, MAPPED = 4 };
  static char beginning[BEGINNING];
  void* mapped[MAPPED] = {NULL};
  struct stat status;
  int parent = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t size = read(parent, beginning, BEGINNING);
  if (size < 0 || fstat(parent, &status) != 0) die(path);
  for (long i = 0; i < count; i++) {
    char name[] = "/tmp/hostile.XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    if (posix_fallocate(fd, 0, status.st_size) != 0 || pwrite(fd, beginning, (size_t)size, 0) != size) die("file");
    void** place = &mapped[i % MAPPED];
    if (*place != NULL) munmap(*place, PAGE);
    *place = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    close(fd);
  }
  close(parent);
}

static void make_spaces(long mappings, long children) {
  int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  int ready[2];
  if (self < 0 || pipe(ready) != 0) die("spaces");
  for (long i = 0; i < mappings; i++) map_code(self);
  for (long i = 0; i < children; i++) {
    pid_t child = fork();
    if (child < 0) die("fork");
    char byte = 0;
    if (child == 0) {
      map_code(self);
      if (write(ready[1], &byte, 1) != 1) die("pipe");
      for (;;) pause();
    }
    if (read(ready[0], &byte, 1) != 1) die("pipe");
  }
}

struct hidden {
  void* control;
  int is_mapped; /* a pipe, which says that the page lies in the file */
};

static void* touch(void* argument) {
  struct hidden* hidden = argument;
  char byte;
  if (read(hidden->is_mapped, &byte, 1) != 1) die("pipe");
  (void)*(volatile char*)hidden->control;
  return NULL;
}

static void hide(const char* path, long count) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  int ready[2];
  if (fd < 0 || pipe(ready) != 0) die(path);
  printf("hidden");
  for (long i = 0; i < count; i++) {
    pid_t child = fork();
    if (child < 0) die("fork");
    char byte = 0;
    if (child == 0) {
      void* control = page();
      int mapped[2];
      pthread_t thread;
      if (pipe(mapped) != 0) die("pipe");
      struct hidden hidden = {control, mapped[0]};
      /* First, because a new thread needs a mapping, and mapping waits for a reader of the page. */
      if (pthread_create(&thread, NULL, touch, &hidden) != 0) die("thread");
      make_valid(control);
      fire_start((uintptr_t)control);
      fire_alloc(new_block(), BLOCK, BLOCK);
      if (mmap(control, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) != control) die(path);
      if (write(mapped[1], &byte, 1) != 1 || write(ready[1], &byte, 1) != 1) die("pipe");
      for (;;) pause();
    }
    if (read(ready[0], &byte, 1) != 1) die("pipe");
    printf(" %d", (int)child);
  }
  printf("\n");
}

static void read_line(int fd) {
  char byte;
  while (read(fd, &byte, 1) == 1 && byte != '\n') {
  }
}

static void become(const char* program, const char* file, const char* path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  void* asked = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  int input = dup(STDIN_FILENO);
  int event = eventfd(0, 0);
  pthread_t thread;
  if (fd < 0 || asked == MAP_FAILED || event < 0 || pthread_create(&thread, NULL, touch, asked) != 0) die(path);
  pid_t child = vfork();
  if (child == 0) {
    read_line(input);
    fire_dump((uintptr_t)asked);
    read_line(input);
    dup2(event, STDIN_FILENO);
    for (int other = 3; other < REQUESTS; other++) close(other);
    execl(program, program, file, NULL);
    _exit(1);
  }
  for (;;) pause();
}

static void take_name(const char* hex) {
  char name[16] = "";
  for (size_t i = 0; i + 1 < sizeof name && hex[0] != '\0' && hex[1] != '\0'; i++, hex += 2) {
    char digits[] = {hex[0], hex[1], '\0'};
    name[i] = (char)strtoul(digits, NULL, 16);
  }
  prctl(PR_SET_NAME, name);
}

int main(void) {
  char line[1024], word[200], file[200], request_file[200];
  long count, children;
  setvbuf(stdout, NULL, _IOLBF, 0);
  printf("ready %d\n", (int)getpid());
  while (fgets(line, sizeof line, stdin) != NULL) {
    if (sscanf(line, "start %199s", word) == 1) {
      uintptr_t address = address_of(word);
      fire_start(address);
      if (strcmp(word, "absent") == 0) make_absent((void*)address); /* NOLINT(performance-no-int-to-ptr) */
      printf("started %s\n", word);
    } else if (sscanf(line, "flood %199s %ld", word, &count) == 2) {
      uintptr_t address = address_of(word);
      for (long i = 0; i < count; i++) fire_start(address);
      printf("flooded %ld\n", count);
    } else if (sscanf(line, "requests %ld", &count) == 1) {
      requests[0] = (struct heaptap_dump_request){.sequence = ++sequence, .kind = HEAPTAP_DUMP_MANUAL, .file_fd = -1};
      for (long i = 0; i < count; i++) fire_dump((uintptr_t)&requests[0]);
      printf("requested %ld\n", count);
    } else if (sscanf(line, "ask %199s", word) == 1) {
      ask(word);
    } else if (sscanf(line, "request %ld %199s", &count, word) == 2) {
      for (long i = 0; i < count; i++) {
        request(word);
        usleep(5000);
      }
      printf("requested %ld\n", count);
    } else if (sscanf(line, "sample %ld", &count) == 1) {
      for (long i = 0; i < count; i++) fire_alloc(new_block(), BLOCK, BLOCK);
      printf("sampled %ld\n", count);
    } else if (sscanf(line, "paths %ld", &count) == 1) {
      for (unsigned long path = 0; path < 1UL << count; path++) go(path, (int)count);
      printf("sampled %lu\n", 1UL << count);
    } else if (sscanf(line, "map %ld", &count) == 1) {
      int self = open("/proc/self/exe", O_RDONLY);
      for (long i = 0; i < count; i++) munmap(mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, self, 0), PAGE);
      close(self);
      printf("mapped %ld\n", count);
    } else if (sscanf(line, "name %199s", word) == 1) {
      take_name(word);
      printf("named\n");
    } else if (sscanf(line, "map_file %199s", word) == 1) {
      map_file(word, false);
      printf("mapped 1\n");
    } else if (sscanf(line, "remap %ld %199s", &count, word) == 2) {
      for (long i = 0; i < count; i++) map_file(word, true);
      printf("remapped %ld\n", count);
    } else if (sscanf(line, "breed %ld %199s", &count, word) == 2) {
      breed(word, count);
      printf("bred %ld\n", count);
    } else if (sscanf(line, "spaces %ld %ld", &count, &children) == 2) {
      make_spaces(count, children);
      printf("forked %ld\n", children);
    } else if (sscanf(line, "hide %ld %199s", &count, word) == 2) {
      hide(word, count);
    } else if (sscanf(line, "become %199s %199s %199s", word, file, request_file) == 3) {
      become(word, file, request_file);
    } else if (sscanf(line, "stall %199s", word) == 1) {
      if (open(word, O_RDWR | O_CLOEXEC) < 0) die(word);
      printf("stalling\n");
      execl("/bin/true", "true", NULL);
      die("exec");
    } else {
      return 1;
    }
  }
  return 0;
}
