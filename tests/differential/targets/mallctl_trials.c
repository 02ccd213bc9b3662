// SPDX-License-Identifier: Apache-2.0
//
// Tries every name of mallctl_table.h in every valid and invalid way, and prints a line for each trial:
//
//   NAME|TRIAL|RESULT
//
// for run_tables to compare between allocators. It works with any allocator: dlsym finds the functions. Each name is
// tried in its own process, so that names do not influence each other; if a trial ends the process, the result is the
// signal, and the next process continues with the following trial.
//
//   mallctl_trials [PREFIX...]           only names that begin with one of these
//   mallctl_trials --read [PREFIX...]    only reads them, after one allocation
//
// With --read it ends without exit(), so that options for the end of a process have no effect.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mallctl_table.h"

// The program's built-in options, if any.
#ifdef MALLOC_CONF
const char* malloc_conf = MALLOC_CONF;
#endif
#ifdef MALLOC_CONF_HARDER
const char* malloc_conf_2_conf_harder = MALLOC_CONF_HARDER;
#endif

static int (*mallctl)(const char* name, void* old, size_t* old_length, void* new, size_t new_length);
static int (*mallctlnametomib)(const char* name, size_t* numbers, size_t* depth);
static int (*mallctlbymib)(const size_t* numbers, size_t depth, void* old, size_t* old_length, void* new,
                           size_t new_length);

// Longer than any value. kFill marks bytes that were not written.
enum { kValueMaximum = 128, kNameMaximum = 256, kDepthMaximum = 16, kFill = 0xA5, kSecondsForName = 60 };

static const size_t kTypeSize[] = {
    [NOTHING] = 8,  [BOOLEAN] = 1,   [UNSIGNED] = 4,       [SIZE] = 8,   [SIGNED_SIZE] = 8, [NUMBER32] = 4,
    [NUMBER64] = 8, [TEXT] = 8,      [POINTER] = 8,        [HOOK] = 8,   [COUNTS] = 16,     [WRITER] = 16,
    [HOOKS] = 32,   [CALLBACK] = 16, [ARENA_SETTING] = 16, [BATCH] = 32, [EXTENT] = 48,     [BLOCK_USE] = 24,
};

union Value {
  unsigned char bytes[kValueMaximum];
  bool boolean;
  uint32_t number32;
  uint64_t number64;
  uint64_t numbers64[kValueMaximum / 8];
  int64_t signed64;
  const char* text;
  void* pointer;
};

static void* blocks[kBlocks];
static const struct Row* row;
static const char* name;

// The progress of the process that tries a name; its parent reads it.
struct Progress {
  int trials;
  bool is_readable;
  char trial[128];
};
static struct Progress* progress;
static int trials_seen;
// The number of trials in earlier processes.
static int trials_done;

// Begins a trial. False if it was already tried.
static bool begin(const char* trial) {
  if (trials_seen++ < trials_done) return false;
  progress->trials = trials_seen;
  snprintf(progress->trial, sizeof(progress->trial), "%s", trial);
  return true;
}

// Prints the result at once, without malloc.
__attribute__((format(printf, 1, 2))) static void say(const char* format, ...) {
  char line[1024];
  int length = snprintf(line, sizeof(line), "%s|%s|", name, progress->trial);
  va_list arguments;
  va_start(arguments, format);
  length += vsnprintf(line + length, sizeof(line) - (size_t)length - 1, format, arguments);
  va_end(arguments);
  line[length++] = '\n';
  if (write(STDOUT_FILENO, line, (size_t)length) != length) _exit(1);
}

static const char* error_name(int error) {
  return error == 0 ? "0" : strerrorname_np(error) != NULL ? strerrorname_np(error) : "unknown";
}

static void hook(void) {}

static void take_text(void* argument, const char* text) {
  (void)argument;
  (void)text;
}

// --- values ---

static void print_quoted(const char* text, char* out, size_t size) {
  size_t length = 0;
  out[length++] = '"';
  for (; *text != '\0' && length + 5 < size; text++) {
    length += (size_t)snprintf(out + length, size - length, *text >= ' ' ? "%c" : "\\x%02x", (unsigned char)*text);
  }
  snprintf(out + length, size - length, "\"");
}

// The part of a value that allocators have in common.
static void print_value(enum Type type, const union Value* value, char* out, size_t size) {
  union Value nought = {{0}};
  if (row->comparison == ANY) {
    snprintf(out, size, "any");
  } else if (row->comparison == IS_NOUGHT || type == POINTER || type == HOOK) {
    snprintf(out, size, "%s", memcmp(value, &nought, kTypeSize[type]) == 0 ? "0" : "not 0");
  } else if (type == TEXT) {
    if (value->text == NULL) {
      snprintf(out, size, "null");
    } else {
      print_quoted(value->text, out, size);
    }
  } else if (type == BOOLEAN) {
    snprintf(out, size, "%s", value->bytes[0] == 0 ? "false" : value->bytes[0] == 1 ? "true" : "no boolean");
  } else if (type == COUNTS) {
    snprintf(out, size, "%" PRIu64 " in %" PRIu64, value->numbers64[0], value->numbers64[1]);
  } else if (type == SIGNED_SIZE) {
    snprintf(out, size, "%" PRId64, value->signed64);
  } else {
    snprintf(out, size, "%" PRIu64, kTypeSize[type] == 4 ? value->number32 : value->number64);
  }
}

// The value that a word of Row.written stands for. `same` is what was read.
static union Value make_value(enum Type type, const char* word, const union Value* same, char* text) {
  union Value value = {{0}};
  if (strcmp(word, "same") == 0) return *same;
  if (strcmp(word, "null") == 0 || strcmp(word, "zero") == 0) return value;
  if (strcmp(word, "block") == 0) {
    value.pointer = blocks[0];
  } else if (strcmp(word, "hook") == 0) {
    void (*function)(void) = type == WRITER ? (void (*)(void))take_text : hook;
    memcpy(&value, &function, sizeof(function));
  } else if (type == TEXT) {
    value.text = strcpy(text, word);
  } else if (type == BOOLEAN) {
    value.boolean = strcmp(word, "true") == 0;
  } else {
    value.number64 = strtoull(word, NULL, 10);
  }
  return value;
}

// --- trials ---

struct Call {
  bool has_old, has_old_length, has_new;
  size_t old_length, new_length;
};

// Numbers of a name instead of it, if depth is not nought.
static size_t numbers[kDepthMaximum];
static size_t depth;

static int call(const struct Call* call, union Value* old, size_t* old_length, union Value* new) {
  void* old_value = call->has_old ? old : NULL;
  size_t* length = call->has_old_length ? old_length : NULL;
  void* new_value = call->has_new ? new : NULL;
  return depth != 0 ? mallctlbymib(numbers, depth, old_value, length, new_value, call->new_length)
                    : mallctl(name, old_value, length, new_value, call->new_length);
}

// Whether the call would carry out a harmful name.
static bool may_call(const struct Call* call) {
  return !row->is_harmful || call->has_old || call->has_old_length || (row->write == NOTHING && call->has_new) ||
         (row->write != NOTHING && call->has_new && call->new_length != kTypeSize[row->write]);
}

static bool read_value(union Value* value) {
  size_t length = kTypeSize[row->read];
  return progress->is_readable && mallctl(name, value, &length, NULL, 0) == 0;
}

static void try_call(const char* trial, struct Call request, const union Value* new) {
  if (!may_call(&request) || !begin(trial)) return;
  union Value old, copy = *new;
  memset(&old, kFill, sizeof(old));
  size_t length = request.old_length;
  errno = 0;
  int result = call(&request, &old, &length, &copy);
  int error = result == 0 ? errno : 0;
  if (request.old_length == kTypeSize[row->read] && request.has_old && !request.has_new) {
    progress->is_readable = result == 0 && row->read != NOTHING;
  }
  char text[300] = "", after[300] = "";
  size_t written = sizeof(old);
  while (written > 0 && old.bytes[written - 1] == kFill) written--;
  if (result == 0 && request.has_old && written == kTypeSize[row->read]) {
    strcpy(text, " value ");
    print_value(row->read, &old, text + strlen(text), sizeof(text) - strlen(text));
  }
  union Value now;
  if (request.has_new && read_value(&now)) {
    strcpy(after, " then ");
    print_value(row->read, &now, after + strlen(after), sizeof(after) - strlen(after));
  }
  char lengths[60] = "";
  if (request.has_old_length) snprintf(lengths, sizeof(lengths), " length %zu", length);
  if (request.has_old && row->comparison != ANY) {
    snprintf(lengths + strlen(lengths), sizeof(lengths) - strlen(lengths), " wrote %zu", written);
  }
  say("%s%s%s%s%s", error_name(result), lengths, text, after, error != 0 ? " errno changed" : "");
}

// Reads, right and wrong. `prefix` stands before the trial's name.
static void try_reads(const char* prefix) {
  static const union Value none;
  size_t size = kTypeSize[row->read];
  char trial[64];
  const struct {
    const char* what;
    struct Call call;
  } trials[] = {
      {"read", {.has_old = true, .has_old_length = true, .old_length = size}},
      {"read short", {.has_old = true, .has_old_length = true, .old_length = size - 1}},
      {"read long", {.has_old = true, .has_old_length = true, .old_length = size + 1}},
      {"read length 0", {.has_old = true, .has_old_length = true, .old_length = 0}},
      {"read without length", {.has_old = true}},
      {"read without value", {.has_old_length = true, .old_length = size}},
      {"nothing", {.has_old = false}},
      {"length of new without value", {.new_length = kTypeSize[row->write]}},
  };
  for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
    snprintf(trial, sizeof(trial), "%s%s", prefix, trials[i].what);
    try_call(trial, trials[i].call, &none);
  }
}

static void try_writes(const union Value* same) {
  char words[256], text[256];
  size_t size = kTypeSize[row->write], old_size = kTypeSize[row->read];
  union Value first = {{0}};
  bool has_first = false;
  strcpy(words, row->written != NULL ? row->written : "zero");
  for (char* rest = words; rest != NULL;) {
    char trial[128];
    const char* word = strsep(&rest, ";");
    union Value value = make_value(row->write, word, same, text);
    snprintf(trial, sizeof(trial), "write ");
    print_quoted(word, trial + strlen(trial), sizeof(trial) - strlen(trial));
    try_call(trial, (struct Call){.has_new = true, .new_length = size}, &value);
    if (!has_first) first = make_value(row->write, word, same, (char[256]){0}), has_first = true;
    if (row->write == TEXT && value.text != NULL) first.text = "name";
  }
  const struct {
    const char* what;
    struct Call call;
  } trials[] = {
      {"write short", {.has_new = true, .new_length = size - 1}},
      {"write long", {.has_new = true, .new_length = size + 1}},
      {"write length 0", {.has_new = true, .new_length = 0}},
      {"read and write", {true, true, true, old_size, size}},
      {"read short and write", {true, true, true, old_size - 1, size}},
      {"read and write short", {true, true, true, old_size, size - 1}},
      {"read without length and write", {true, false, true, 0, size}},
      {"read without value and write", {false, true, true, old_size, size}},
  };
  for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) try_call(trials[i].what, trials[i].call, &first);
}

static void try_numbers_of_name(const char* trial, size_t room) {
  if (!begin(trial)) return;
  size_t few[kDepthMaximum], length = room;
  int result = mallctlnametomib(name, few, &length);
  say("%s depth %zu%s", error_name(result), length,
      result == 0 && memcmp(few, numbers, length * sizeof(few[0])) != 0 ? " others" : "");
}

static void try_by_numbers(const char* trial, size_t count) {
  if (!begin(trial)) return;
  union Value old;
  size_t length = kTypeSize[row->read];
  say("%s", error_name(mallctlbymib(numbers, count, &old, &length, NULL, 0)));
}

static void try_numbers(void) {
  size_t whole = kDepthMaximum;
  bool is_name = mallctlnametomib(name, numbers, &whole) == 0;
  try_numbers_of_name("numbers", kDepthMaximum);
  try_numbers_of_name("numbers, room for none", 0);
  if (!is_name) return;
  try_numbers_of_name("numbers, room for all", whole);
  if (whole > 1) try_numbers_of_name("numbers, room for less", whole - 1);
  depth = whole;
  try_reads("by numbers: ");
  depth = 0;
  try_by_numbers("by numbers, none: read", 0);
  if (whole > 1) try_by_numbers("by numbers, one less: read", whole - 1);
}

// Last: jemalloc may crash, which also ends the settings of other trials.
static void try_a_number_too_many(void) {
  size_t whole = kDepthMaximum;
  if (mallctlnametomib(name, numbers, &whole) == 0) try_by_numbers("by numbers, one more: read", whole + 1);
}

static void try_name(void) {
  union Value same = {{0}};
  try_reads("");
  try_numbers();
  read_value(&same);
  try_writes(&same);
  try_a_number_too_many();
}

static void try_in_children(void) {
  int status;
  *progress = (struct Progress){0};
  do {
    trials_done = progress->trials;
    pid_t child = fork();
    if (child == 0) {
      alarm(kSecondsForName);
      try_name();
      _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || (WIFEXITED(status) && WEXITSTATUS(status) != 0)) exit(1);
    if (WIFSIGNALED(status)) say("SIG%s", sigabbrev_np(WTERMSIG(status)));
  } while (WIFSIGNALED(status) && progress->trials > trials_done);
  if (WIFSIGNALED(status)) exit(1);
}

// --- names ---

// Calls visit() with each name that a pattern stands for. `buffer` has kNameMaximum bytes, of which `length` are used.
static void expand(const char* pattern, char* buffer, size_t length, void (*visit)(void)) {
  for (; *pattern != '\0' && *pattern != '{'; pattern++) buffer[length++] = *pattern;
  if (*pattern == '\0') {
    buffer[length] = '\0';
    name = buffer;
    visit();
    return;
  }
  const char* end = strchr(pattern, '}');
  for (const char* word = pattern + 1; word <= end;) {
    size_t size = strcspn(word, ",}");
    memcpy(buffer + length, word, size);
    expand(end + 1, buffer, length + size, visit);
    word += size + 1;
  }
}

static char** prefixes;
static int prefix_count;

static bool is_asked(void) {
  bool result = prefix_count == 0;
  for (int i = 0; i < prefix_count; i++) result |= strncmp(name, prefixes[i], strlen(prefixes[i])) == 0;
  return result;
}

static void try_if_asked(void) {
  if (is_asked()) try_in_children();
}

static void read_if_asked(void) {
  static const union Value none;
  struct Call request = {.has_old = true, .has_old_length = true, .old_length = kTypeSize[row->read]};
  if (row->read != NOTHING && is_asked()) try_call("read", request, &none);
}

static void for_each_name(void (*visit)(void)) {
  static char buffer[kNameMaximum];
  for (row = kTable; row < kTable + sizeof(kTable) / sizeof(kTable[0]); row++) expand(row->name, buffer, 0, visit);
}

// Makes the figures of one small and one large size class known.
static void allocate(void) {
  static void* freed[kBlocksFreed];
  static void* large[kLarge];
  for (int i = 0; i < kBlocksFreed; i++) freed[i] = malloc(kBlockSize);
  for (int i = 0; i < kBlocks; i++) blocks[i] = malloc(kBlockSize);
  for (int i = 0; i < kLarge; i++) large[i] = malloc(kLargeSize);
  for (int i = 0; i < kBlocksFreed; i++) free(freed[i]);
  free(large[0]);
  mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
  uint64_t epoch = 1;
  mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch));
}

int main(int count, char** arguments) {
  mallctl = (__typeof__(mallctl))dlsym(RTLD_DEFAULT, "mallctl");
  mallctlnametomib = (__typeof__(mallctlnametomib))dlsym(RTLD_DEFAULT, "mallctlnametomib");
  mallctlbymib = (__typeof__(mallctlbymib))dlsym(RTLD_DEFAULT, "mallctlbymib");
  if (mallctl == NULL || mallctlnametomib == NULL || mallctlbymib == NULL) {
    fprintf(stderr, "mallctl_trials: no mallctl, mallctlnametomib or mallctlbymib\n");
    return 2;
  }
  bool only_reads = count > 1 && strcmp(arguments[1], "--read") == 0;
  prefixes = arguments + 1 + only_reads;
  prefix_count = count - 1 - only_reads;
  // Crashes are results. One byte: with none, a program that takes cores would still be started.
  if (setrlimit(RLIMIT_CORE, &(struct rlimit){1, 1}) != 0) return 1;
  progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (progress == MAP_FAILED) return 1;
  if (only_reads) {
    // Some options take effect at an allocation.
    blocks[0] = malloc(kLargeSize);
    for_each_name(read_if_asked);
    _exit(0);
  }
  allocate();
  for_each_name(try_if_asked);
  return 0;
}
