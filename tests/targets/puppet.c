/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that a test drives, also through jemalloc's control interface if there is one: one command per line on
 * stdin, one answer per line on stdout. First it prints "ready PID". It ends with status 0 at the end of its input.
 *
 *   keep N SIZE          allocates N blocks of SIZE bytes in keep_blocks() and keeps them      -> "kept N"
 *   deep N SIZE          keeps one block at each depth from 1 to N of keep_deep()               -> "kept N"
 *   start N SIZE         the same in start_blocks()                                            -> "started N"
 *   churn N SIZE         allocates and frees N blocks in churn_blocks()                        -> "churned N"
 *   drop                 frees all kept blocks                                                 -> "dropped N"
 *   call NAME            mallctl without any argument                                          -> "ERROR"
 *   read TYPE NAME                                                                             -> "ERROR VALUE"
 *   write TYPE NAME VALUE                                                                      -> "ERROR"
 *   swap TYPE NAME VALUE writes and reads in one call                                          -> "ERROR OLD"
 *                        TYPE: bool, unsigned, size, ssize, u64, string; an error is errno's number
 *   name NAME            pthread_setname_np of the thread                                      -> "ERROR"
 *   in THREAD COMMAND    the command in the thread of that number (1 to 8), which is started when first needed
 *   fork COMMAND[;...]   the commands in a forked child, which ends                            -> "PID LAST-ANSWER"
 *   handle COMMAND       the command in a signal handler
 *   arm COMMAND          SIGUSR2's handler from now on runs the command and prints             -> "armed"
 *                        "handler ANSWER" between two answers
 *   storm N PREFIX       N threads at once write prof.dump to PREFIX.<thread>
 *                        -> "storm MILLISECONDS ERROR..." milliseconds of the slowest, errors by thread
 *   interrupt N SIZE     churns while a timer's handler asks for N dumps                       -> "ERROR..."
 *   uid N                drops to user and group N                                             -> "uid N"
 *   chdir FOLDER                                                                               -> "chdir ERROR"
 *   move_code            moves the program's code to anonymous memory at its own address       -> "moved_code ERRNO"
 *   end_main             ends the main thread; another one obeys from now on                   -> "ended_main"
 *   exit N | _exit N | abort | segv | raise SIGNAL | exec PROGRAM                                 ends
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Absent unless the allocator has it. */
extern int mallctl(const char* name, void* old, size_t* old_length, void* new, size_t new_length) __attribute__((weak));

#define NOINLINE __attribute__((noinline, noclone))

enum { KEPT_MAX = 1 << 22, LINE_MAX_BYTES = 4096, THREADS_MAX = 8, STORM_MAX = 64, INTERRUPTS_MAX = 64 };
static void* kept[KEPT_MAX];
static atomic_size_t kept_count;

NOINLINE void keep_blocks(size_t count, size_t size) {
  for (size_t i = 0; i < count && kept_count < KEPT_MAX; i++) {
    kept[atomic_fetch_add(&kept_count, 1)] = malloc(size);
  }
}

NOINLINE void keep_deep(size_t depth, size_t size) {
  keep_blocks(1, size);
  if (depth > 1) {
    keep_deep(depth - 1, size);
  }
}

NOINLINE void start_blocks(size_t count, size_t size) {
  for (size_t i = 0; i < count && kept_count < KEPT_MAX; i++) {
    kept[atomic_fetch_add(&kept_count, 1)] = malloc(size);
  }
}

NOINLINE void churn_blocks(size_t count, size_t size) {
  for (size_t i = 0; i < count; i++) {
    void* volatile block = malloc(size);
    free(block);
  }
}

NOINLINE size_t drop_blocks(void) {
  size_t count = kept_count;
  while (kept_count > 0) {
    free(kept[--kept_count]);
  }
  return count;
}

/* --- the control interface --- */

union value {
  bool boolean;
  unsigned number;
  size_t size;
  ssize_t signed_size;
  uint64_t u64;
  const char* string;
};

static size_t size_of(const char* type) {
  return strcmp(type, "bool") == 0 ? sizeof(bool) : strcmp(type, "unsigned") == 0 ? sizeof(unsigned) : sizeof(uint64_t);
}

static union value parse(const char* type, const char* text) {
  union value value = {0};
  if (strcmp(type, "bool") == 0) {
    value.boolean = strcmp(text, "true") == 0;
  } else if (strcmp(type, "unsigned") == 0) {
    value.number = (unsigned)strtoul(text, NULL, 0);
  } else if (strcmp(type, "string") == 0) {
    value.string = text;
  } else {
    value.u64 = (uint64_t)strtoll(text, NULL, 0);
  }
  return value;
}

static int print_value(char* answer, size_t size, int error, const char* type, union value value) {
  if (strcmp(type, "bool") == 0) {
    return snprintf(answer, size, "%d %s", error, value.boolean ? "true" : "false");
  } else if (strcmp(type, "unsigned") == 0) {
    return snprintf(answer, size, "%d %u", error, value.number);
  } else if (strcmp(type, "string") == 0) {
    return snprintf(answer, size, "%d %s", error, error == 0 && value.string != NULL ? value.string : "-");
  } else if (strcmp(type, "ssize") == 0) {
    return snprintf(answer, size, "%d %zd", error, value.signed_size);
  }
  return snprintf(answer, size, "%d %ju", error, (uintmax_t)value.u64);
}

static int control(const char* name, void* old, size_t* old_length, void* new, size_t new_length) {
  return mallctl == NULL ? ENOSYS : mallctl(name, old, old_length, new, new_length);
}

/* --- commands --- */

static void obey(char* line, char* answer, size_t size);

/* A thread with one command at a time. `line` is empty when it is done. */
struct worker {
  pthread_t thread;
  bool started;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  char line[LINE_MAX_BYTES];
  char answer[LINE_MAX_BYTES];
};
static struct worker workers[THREADS_MAX + 1];

static void* work(void* argument) {
  struct worker* self = argument;
  pthread_mutex_lock(&self->mutex);
  for (;;) {
    while (self->line[0] == '\0') {
      pthread_cond_wait(&self->changed, &self->mutex);
    }
    obey(self->line, self->answer, sizeof self->answer);
    self->line[0] = '\0';
    pthread_cond_broadcast(&self->changed);
  }
  return NULL;
}

static void obey_in_thread(size_t number, const char* line, char* answer, size_t size) {
  if (number < 1 || number > THREADS_MAX) {
    snprintf(answer, size, "no such thread");
    return;
  }
  struct worker* worker = &workers[number];
  if (!worker->started) {
    pthread_mutex_init(&worker->mutex, NULL);
    pthread_cond_init(&worker->changed, NULL);
    pthread_create(&worker->thread, NULL, work, worker);
    worker->started = true;
  }
  pthread_mutex_lock(&worker->mutex);
  snprintf(worker->line, sizeof worker->line, "%s", line);
  pthread_cond_broadcast(&worker->changed);
  while (worker->line[0] != '\0') {
    pthread_cond_wait(&worker->changed, &worker->mutex);
  }
  snprintf(answer, size, "%s", worker->answer);
  pthread_mutex_unlock(&worker->mutex);
}

static void obey_in_child(char* line, char* answer, size_t size) {
  int ends[2];
  if (pipe(ends) != 0) {
    snprintf(answer, size, "pipe: errno %d", errno);
    return;
  }
  pid_t child = fork();
  if (child == 0) {
    for (char* rest = NULL; line != NULL; line = rest) {
      rest = strchr(line, ';');
      if (rest != NULL) {
        *rest++ = '\0';
      }
      obey(line, answer, size);
    }
    _exit(write(ends[1], answer, strlen(answer)) > 0 ? 0 : 1);
  }
  close(ends[1]);
  int length = snprintf(answer, size, "%d ", (int)child);
  ssize_t got = read(ends[0], answer + length, size - (size_t)length - 1);
  answer[length + (got > 0 ? got : 0)] = '\0';
  close(ends[0]);
  waitpid(child, NULL, 0);
}

/* The handler's command, and whether the handler prints the answer itself. */
static char handler_line[LINE_MAX_BYTES];
static char handler_answer[LINE_MAX_BYTES];
static bool handler_speaks;

static void handle(int number) {
  (void)number;
  static char line[LINE_MAX_BYTES], said[LINE_MAX_BYTES + 16];
  int saved = errno;
  memcpy(line, handler_line, sizeof line);
  obey(line, handler_answer, sizeof handler_answer);
  if (handler_speaks) {
    int length = snprintf(said, sizeof said, "handler %s\n", handler_answer);
    if (write(STDOUT_FILENO, said, (size_t)length) != length) {
      _exit(99);
    }
  }
  errno = saved;
}

static void install(const char* line, bool speaks) {
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  snprintf(handler_line, sizeof handler_line, "%s", line);
  handler_speaks = speaks;
  sigaction(SIGUSR2, &action, NULL);
}

static long milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct request {
  pthread_t thread;
  char name[LINE_MAX_BYTES + 8];
  int error;
  long milliseconds;
};
static pthread_barrier_t all_there;

static void* ask_for_dump(void* argument) {
  struct request* request = argument;
  const char* name = request->name;
  pthread_barrier_wait(&all_there);
  long begun = milliseconds();
  request->error = control("prof.dump", NULL, NULL, &name, sizeof name);
  request->milliseconds = milliseconds() - begun;
  return NULL;
}

static void storm(size_t count, const char* prefix, char* answer, size_t size) {
  static struct request requests[STORM_MAX];
  count = count > STORM_MAX ? STORM_MAX : count;
  pthread_barrier_init(&all_there, NULL, (unsigned)count);
  for (size_t i = 0; i < count; i++) {
    snprintf(requests[i].name, sizeof requests[i].name, "%s.%zu", prefix, i);
    pthread_create(&requests[i].thread, NULL, ask_for_dump, &requests[i]);
  }
  long slowest = 0;
  for (size_t i = 0; i < count; i++) {
    pthread_join(requests[i].thread, NULL);
    slowest = requests[i].milliseconds > slowest ? requests[i].milliseconds : slowest;
  }
  int length = snprintf(answer, size, "storm %ld", slowest);
  for (size_t i = 0; i < count; i++) {
    length += snprintf(answer + length, size - (size_t)length, " %d", requests[i].error);
  }
}

static volatile sig_atomic_t interrupts_left;
static int interrupt_errors[INTERRUPTS_MAX];

static void dump_on_alarm(int number) {
  (void)number;
  int saved = errno;
  if (interrupts_left > 0) {
    interrupt_errors[interrupts_left - 1] = control("prof.dump", NULL, NULL, NULL, 0);
    interrupts_left--;
  }
  errno = saved;
}

static void interrupt(size_t count, size_t block, char* answer, size_t size) {
  struct sigaction action = {.sa_handler = dump_on_alarm, .sa_flags = SA_RESTART};
  struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
  count = count > INTERRUPTS_MAX ? INTERRUPTS_MAX : count;
  interrupts_left = (sig_atomic_t)count;
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  while (interrupts_left > 0) {
    churn_blocks(1000, block);
  }
  setitimer(ITIMER_REAL, &never, NULL);
  int length = 0;
  for (size_t i = 0; i < count; i++) {
    length += snprintf(answer + length, size - (size_t)length, "%s%d", i > 0 ? " " : "", interrupt_errors[i]);
  }
}

static void leave(const char* how, int number, const char* program) {
  if (strcmp(how, "exit") == 0) {
    exit(number);
  } else if (strcmp(how, "_exit") == 0) {
    _exit(number);
  } else if (strcmp(how, "abort") == 0) {
    abort();
  } else if (strcmp(how, "segv") == 0) {
    *(volatile int*)8 = 1;
  } else if (strcmp(how, "raise") == 0) {
    raise(number);
  } else if (strcmp(how, "exec") == 0) {
    execl(program, program, (char*)NULL);
    perror(program);
  }
}

static void obey_control(const char* word, const char* type, const char* name, const char* text, char* answer,
                         size_t size) {
  union value old = {0};
  union value new = parse(type, text);
  size_t length = size_of(type);
  if (strcmp(word, "read") == 0) {
    int error = control(name, &old, &length, NULL, 0);
    print_value(answer, size, error, type, old);
  } else if (strcmp(word, "write") == 0) {
    snprintf(answer, size, "%d", control(name, NULL, NULL, &new, length));
  } else {
    size_t old_length = length;
    int error = control(name, &old, &old_length, &new, length);
    print_value(answer, size, error, type, old);
  }
}

/* The rest of a line after its first word, or after its first two. */
static char* after_words(char* line, int words) {
  for (int i = 0; i < words; i++) {
    line += strcspn(line, " ");
    line += strspn(line, " ");
  }
  return line;
}

/* The first object is the program, with one segment of code. */
static int move_code(struct dl_phdr_info* object, size_t size, void* error) {
  (void)size;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr)* segment = &object->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || (segment->p_flags & PF_X) == 0) {
      continue;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char* code = (char*)((object->dlpi_addr + segment->p_vaddr) / page * page);
    size_t length = ((object->dlpi_addr + segment->p_vaddr + segment->p_memsz + page - 1) / page * page) - (size_t)code;
    void* copy = mmap(NULL, length, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy != MAP_FAILED) {
      memcpy(copy, code, length);
    }
    if (copy == MAP_FAILED || mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, code) == MAP_FAILED ||
        mprotect(code, length, PROT_READ | PROT_EXEC) != 0) {
      *(int*)error = errno;
    }
  }
  return 1;
}

static char line[LINE_MAX_BYTES], answer[LINE_MAX_BYTES]; /* of main() and its successor */
static pthread_t main_thread;

/* The loop of main(), which has one of its own, because tests expect that it calls obey(). */
static void* succeed_main(void* unused) {
  (void)unused;
  pthread_join(main_thread, NULL);
  puts("ended_main");
  while (fgets(line, sizeof line, stdin) != NULL) {
    answer[0] = '\0';
    obey(line, answer, sizeof answer);
    printf("%s\n", answer);
  }
  exit(0);
}

static void end_main(void) {
  pthread_t successor;
  if (pthread_create(&successor, NULL, succeed_main, NULL) == 0) {
    pthread_exit(NULL);
  }
}

static void obey(char* line, char* answer, size_t size) {
  line[strcspn(line, "\n")] = '\0';
  char words[4][LINE_MAX_BYTES] = {"", "", "", ""};
  sscanf(line, "%4095s %4095s %4095s %4095[^\n]", words[0], words[1], words[2], words[3]);
  const char* word = words[0];
  size_t first = strtoul(words[1], NULL, 0);
  size_t second = strtoul(words[2], NULL, 0);
  if (strcmp(word, "keep") == 0) {
    keep_blocks(first, second);
    snprintf(answer, size, "kept %zu", first);
  } else if (strcmp(word, "deep") == 0) {
    keep_deep(first, second);
    snprintf(answer, size, "kept %zu", first);
  } else if (strcmp(word, "start") == 0) {
    start_blocks(first, second);
    snprintf(answer, size, "started %zu", first);
  } else if (strcmp(word, "churn") == 0) {
    churn_blocks(first, second);
    snprintf(answer, size, "churned %zu", first);
  } else if (strcmp(word, "drop") == 0) {
    snprintf(answer, size, "dropped %zu", drop_blocks());
  } else if (strcmp(word, "call") == 0) {
    snprintf(answer, size, "%d", control(words[1], NULL, NULL, NULL, 0));
  } else if (strcmp(word, "read") == 0 || strcmp(word, "write") == 0 || strcmp(word, "swap") == 0) {
    obey_control(word, words[1], words[2], words[3], answer, size);
  } else if (strcmp(word, "name") == 0) {
    snprintf(answer, size, "%d", pthread_setname_np(pthread_self(), words[1]));
  } else if (strcmp(word, "in") == 0) {
    obey_in_thread(first, after_words(line, 2), answer, size);
  } else if (strcmp(word, "fork") == 0) {
    obey_in_child(after_words(line, 1), answer, size);
  } else if (strcmp(word, "handle") == 0) {
    install(after_words(line, 1), false);
    raise(SIGUSR2);
    snprintf(answer, size, "%s", handler_answer);
  } else if (strcmp(word, "arm") == 0) {
    install(after_words(line, 1), true);
    snprintf(answer, size, "armed");
  } else if (strcmp(word, "storm") == 0) {
    storm(first, words[2], answer, size);
  } else if (strcmp(word, "interrupt") == 0) {
    interrupt(first, second, answer, size);
  } else if (strcmp(word, "uid") == 0) {
    int error = setgroups(0, NULL) | setgid((gid_t)first) | setuid((uid_t)first);
    snprintf(answer, size, "uid %d", error == 0 ? (int)getuid() : -1);
  } else if (strcmp(word, "chdir") == 0) {
    snprintf(answer, size, "chdir %d", chdir(words[1]) == 0 ? 0 : errno);
  } else if (strcmp(word, "move_code") == 0) {
    int error = 0;
    dl_iterate_phdr(move_code, &error);
    snprintf(answer, size, "moved_code %d", error);
  } else if (strcmp(word, "end_main") == 0) {
    end_main();
    snprintf(answer, size, "no thread");
  } else {
    leave(word, (int)first, words[1]);
    snprintf(answer, size, "unknown command %s", word);
  }
}

int main(void) {
  /* stdio's own buffers stay out of the heap, so that a test sees only its own blocks there. */
  static char input[BUFSIZ], output[BUFSIZ];
  setvbuf(stdin, input, _IOFBF, sizeof input);
  setvbuf(stdout, output, _IOLBF, sizeof output);
  printf("ready %d\n", (int)getpid());
  main_thread = pthread_self();
  while (fgets(line, sizeof line, stdin) != NULL) {
    answer[0] = '\0';
    obey(line, answer, sizeof answer);
    printf("%s\n", answer);
  }
  return 0;
}
