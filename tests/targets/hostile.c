/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that lies to its collector with its own probes, independently of its allocator. One command per line on
 * stdin, one answer per line on stdout; first it prints "ready PID". It ends with status 0 at the end of its input.
 *
 *   start LIE        fires heaptap:start with such a control block                       -> "started LIE"
 *   flood LIE N      fires it N times                                                    -> "flooded N"
 *   requests N       fires heaptap:dump N times with a request that nobody can answer    -> "requested N"
 *   ask FILE         asks for a dump into such a file, or into PATH                      -> "answered ERROR", "silent"
 *   request PATH     the same, without waiting                                           -> "requested 1"
 *   sample N         fires otel_memory:alloc for N blocks of 64 bytes that are not there -> "sampled N"
 *   map N            maps its own program N times, as code                               -> "mapped N"
 *   name HEX         takes these bytes for its command                                   -> "named"
 *
 * LIE: garbage, null, kernel, noncanonical, valid, absent (valid, but the page is missing, and userfaultfd gets its
 * faults). FILE: file, readonly, pipe, socket, proc, sealed, device, folder, epoll, closed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
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
#include <sys/syscall.h>
#include <unistd.h>

#include "heaptap/contract.h"
#include "probe_note.h"

/* clang-format off */
#define PROBE(function, provider, name, arguments)                            \
  __asm__(                                                                    \
      ".text\n"                                                               \
      ".globl " function "\n"                                                 \
      ".type " function ", @function\n"                                       \
      function ": .cfi_startproc\n"                                           \
      "990: nop\n"                                                            \
      "ret\n"                                                                 \
      ".cfi_endproc\n"                                                        \
      ".size " function ", .-" function "\n"                                  \
      PROBE_NOTE(provider, name, "0", arguments))
/* clang-format on */

void fire_alloc(uintptr_t block, size_t size, size_t weight);
void fire_free(uintptr_t block);
void fire_start(uintptr_t control);
void fire_dump(uintptr_t request);
PROBE("fire_alloc", "otel_memory", "alloc", "8@%rdi 8@%rsi 8@%rdx");
PROBE("fire_free", "otel_memory", "free", "8@%rdi");
PROBE("fire_start", "heaptap", "start", "8@%rdi");
PROBE("fire_dump", "heaptap", "dump", "8@%rdi");

enum { PAGE = 4096, BLOCK = 64 };

static struct heaptap_dump_request request;
static uint64_t sequence;

static void die(const char* what) {
  perror(what);
  exit(1);
}

static void* page(void) {
  void* memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("mmap");
  return memory;
}

static void make_valid(struct heaptap_control* control) {
  *control = (struct heaptap_control){
      .magic = HEAPTAP_CONTROL_MAGIC,
      .version = HEAPTAP_CONTROL_VERSION,
      .size = sizeof *control,
      .pid = (uint32_t)getpid(),
      .active = 1,
      .lg_sample = HEAPTAP_DEFAULT_LG_SAMPLE,
      .collector_lg_sample = HEAPTAP_NO_RATE,
  };
}

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
    return strcmp(kind, "file") == 0 ? fd : reader;
  }
  if (strcmp(kind, "pipe") == 0) return pipe(fds) == 0 ? fds[1] : -1;
  if (strcmp(kind, "socket") == 0) return socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0 ? fds[1] : -1;
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

static void prepare(const char* kind) {
  request = (struct heaptap_dump_request){
      .sequence = ++sequence, .kind = HEAPTAP_DUMP_MANUAL, .file_fd = open_file(kind), .event_fd = eventfd(0, 0)};
}

static void ask(const char* kind) {
  prepare(kind);
  fire_dump((uintptr_t)&request);
  struct pollfd answer = {request.event_fd, POLLIN, 0};
  if (poll(&answer, 1, HEAPTAP_DUMP_TIMEOUT_MILLISECONDS) == 1 && request.answered == request.sequence) {
    printf("answered %d\n", request.error);
  } else {
    printf("silent\n");
  }
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
  char line[256], word[200];
  long count;
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
      request = (struct heaptap_dump_request){.sequence = ++sequence, .kind = HEAPTAP_DUMP_MANUAL, .file_fd = -1};
      for (long i = 0; i < count; i++) fire_dump((uintptr_t)&request);
      printf("requested %ld\n", count);
    } else if (sscanf(line, "ask %199s", word) == 1) {
      ask(word);
    } else if (sscanf(line, "request %199s", word) == 1) {
      prepare(word);
      fire_dump((uintptr_t)&request);
      printf("requested 1\n");
    } else if (sscanf(line, "sample %ld", &count) == 1) {
      for (long i = 0; i < count; i++) fire_alloc(0x1000 + BLOCK * (uintptr_t)i, BLOCK, BLOCK);
      printf("sampled %ld\n", count);
    } else if (sscanf(line, "map %ld", &count) == 1) {
      int self = open("/proc/self/exe", O_RDONLY);
      for (long i = 0; i < count; i++) munmap(mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, self, 0), PAGE);
      close(self);
      printf("mapped %ld\n", count);
    } else if (sscanf(line, "name %199s", word) == 1) {
      take_name(word);
      printf("named\n");
    } else {
      return 1;
    }
  }
  return 0;
}
