/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays the role of a libmtev application: it is linked with no allocator, finds mallctl and malloc_stats_print by
 * dlsym(RTLD_DEFAULT), and serves libmtev's endpoints over HTTP with libmtev's statuses, content types and bodies:
 *
 *   GET /mtev/heap_profile                     the state of profiling, as text
 *   GET /mtev/heap_profile?active=true         activates; any other value deactivates
 *   GET /mtev/heap_profile?trigger_dump=true   a heap profile
 *   GET /mtev/memory.json                      malloc_stats_print(.., "J"), or {} without an allocator that has it
 *
 * and, for the tests, an application that holds memory in its own functions, and in those of libmtev and its hash
 * tables:
 *
 *   GET /application/keep?blocks=N&size=BYTES  in application_keep()
 *   GET /application/noise?blocks=N&size=BYTES in mtev_memory_reclaim() and ck_hs_grow(), half of them each
 *
 * One request per connection, on a free port of the loopback interface. Prints "ready PORT PID"; SIGTERM ends it with
 * status 0.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

typedef int control_function(const char* name, void* old, size_t* old_length, void* new, size_t new_length);
typedef void write_function(void* context, const char* text);
typedef void statistics_function(write_function* write, void* context, const char* options);

static control_function* control;
static statistics_function* print_statistics;

/* --- the application --- */

enum { KEPT_MAX = 1 << 20 };
static void* volatile kept[KEPT_MAX];
static size_t kept_count;

NOINLINE void application_keep(size_t blocks, size_t size) {
  for (size_t i = 0; i < blocks && kept_count < KEPT_MAX; i++) {
    kept[kept_count++] = malloc(size);
  }
}

NOINLINE void mtev_memory_reclaim(size_t blocks, size_t size) {
  for (size_t i = 0; i < blocks && kept_count < KEPT_MAX; i++) {
    kept[kept_count++] = malloc(size);
  }
}

NOINLINE void ck_hs_grow(size_t blocks, size_t size) {
  for (size_t i = 0; i < blocks && kept_count < KEPT_MAX; i++) {
    kept[kept_count++] = malloc(size);
  }
}

/* --- an answer, which grows outside of the profiled heap --- */

enum { BODY_MAX = 4 << 20 };
static struct {
  int status;
  const char* reason;
  const char* type;
  char body[BODY_MAX];
  size_t length;
} answer;

static void answer_is(int status, const char* reason, const char* type) {
  answer.status = status;
  answer.reason = reason;
  answer.type = type;
  answer.length = 0;
}

static void append_bytes(const char* bytes, size_t length) {
  if (length <= BODY_MAX - answer.length) {
    memcpy(answer.body + answer.length, bytes, length);
    answer.length += length;
  }
}

static void append(const char* text) { append_bytes(text, strlen(text)); }

static void append_statistics(void* context, const char* text) {
  (void)context;
  append(text);
}

static void error_is(const char* text) {
  answer_is(500, "ERROR", "text/plain");
  append(text);
}

/* --- the endpoints --- */

static void append_boolean(const char* name) {
  bool value = false;
  size_t length = sizeof value;
  int error = control(name, &value, &length, NULL, 0);
  append(name);
  append(": ");
  append(error != 0 ? "error\n" : value ? "true\n" : "false\n");
  if (strcmp(name, "opt.prof") == 0 && error == 0 && !value) {
    append("# needs MALLOC_CONF=\"prof:true\"\n");
  }
}

static void activate(bool active) {
  int error = control("prof.active", NULL, NULL, &active, sizeof active);
  if (error != 0) {
    error_is(strerror(error));
    return;
  }
  answer_is(200, "OK", "text/plain");
  append(active ? "Profiling is activated\n" : "Profiling is deactivated\n");
}

/* The dump goes through a file that is removed before the answer. */
static void dump(void) {
  char path[] = "heap_profile.XXXXXX";
  int file = mkstemp(path);
  const char* name = path;
  int error = file < 0 ? errno : control("prof.dump", NULL, NULL, &name, sizeof name);
  struct stat status;
  if (file >= 0) {
    unlink(path);
  }
  if (error != 0) {
    error_is(strerror(error));
  } else if (fstat(file, &status) != 0) {
    error_is("Cannot fstat temp file\n");
  } else {
    answer_is(200, "OK", "application/x-jemalloc-heap-profile");
    if (pread(file, answer.body, BODY_MAX, 0) == status.st_size) {
      answer.length = (size_t)status.st_size;
    }
  }
  if (file >= 0) {
    close(file);
  }
}

/* The value of a parameter, or NULL. Valid until the next call. */
static const char* parameter(const char* query, const char* name) {
  static char value[256];
  size_t length = strlen(name);
  for (const char* at = query; at != NULL && *at != '\0'; at = strchr(at, '&'), at = at != NULL ? at + 1 : NULL) {
    if (strncmp(at, name, length) == 0 && at[length] == '=') {
      snprintf(value, sizeof value, "%.*s", (int)strcspn(at + length + 1, "&"), at + length + 1);
      return value;
    }
  }
  return NULL;
}

static size_t number(const char* query, const char* name) {
  const char* text = parameter(query, name);
  return text != NULL ? strtoul(text, NULL, 10) : 0;
}

static void heap_profile(const char* query) {
  if (control == NULL) {
    error_is("libjemalloc is not loaded, cannot heap profile\n");
    return;
  }
  const char* active = parameter(query, "active");
  if (active != NULL) {
    activate(strcmp(active, "true") == 0);
    return;
  }
  const char* trigger = parameter(query, "trigger_dump");
  if (trigger != NULL && strcmp(trigger, "true") == 0) {
    dump();
    return;
  }
  answer_is(200, "OK", "text/plain");
  append_boolean("opt.prof");
  append_boolean("prof.active");
  append_boolean("prof.thread_active_init");
}

static void memory_json(void) {
  answer_is(200, "OK", "application/json");
  if (print_statistics == NULL) {
    append("{}\n");
  } else {
    print_statistics(append_statistics, NULL, "J");
  }
}

static void answer_to(const char* method, const char* path, const char* query) {
  bool get = strcmp(method, "GET") == 0;
  if (get && strcmp(path, "/mtev/heap_profile") == 0) {
    heap_profile(query);
  } else if (get && strcmp(path, "/mtev/memory.json") == 0) {
    memory_json();
  } else if (get && strcmp(path, "/application/keep") == 0) {
    application_keep(number(query, "blocks"), number(query, "size"));
    answer_is(200, "OK", "text/plain");
  } else if (get && strcmp(path, "/application/noise") == 0) {
    mtev_memory_reclaim(number(query, "blocks") / 2, number(query, "size"));
    ck_hs_grow(number(query, "blocks") / 2, number(query, "size"));
    answer_is(200, "OK", "text/plain");
  } else {
    answer_is(404, "NOT FOUND", "text/plain");
  }
}

/* --- HTTP --- */

static void send_all(int connection, const char* bytes, size_t length) {
  while (length > 0) {
    ssize_t sent = send(connection, bytes, length, MSG_NOSIGNAL);
    if (sent <= 0) {
      return;
    }
    bytes += sent;
    length -= (size_t)sent;
  }
}

/* The end of the header, or NULL if the client has disconnected. */
static bool read_head(int connection, char* head, size_t size) {
  size_t length = 0;
  while (length + 1 < size) {
    ssize_t got = recv(connection, head + length, size - length - 1, 0);
    if (got <= 0) {
      return false;
    }
    length += (size_t)got;
    head[length] = '\0';
    if (strstr(head, "\r\n\r\n") != NULL) {
      return true;
    }
  }
  return false;
}

static void serve(int connection) {
  static char head[16384], method[16], target[8192];
  if (!read_head(connection, head, sizeof head) || sscanf(head, "%15s %8191s HTTP/1.", method, target) != 2) {
    return;
  }
  char* query = strchr(target, '?');
  if (query != NULL) {
    *query++ = '\0';
  }
  answer_to(method, target, query);
  int length = snprintf(head, sizeof head,
                        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                        answer.status, answer.reason, answer.type, answer.length);
  send_all(connection, head, (size_t)length);
  send_all(connection, answer.body, answer.length);
}

static int listen_on_loopback(unsigned* port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0 || bind(listener, (struct sockaddr*)&address, length) != 0 || listen(listener, 16) != 0 ||
      getsockname(listener, (struct sockaddr*)&address, &length) != 0) {
    perror("mtev_endpoints");
    exit(1);
  }
  *port = ntohs(address.sin_port);
  return listener;
}

static volatile sig_atomic_t stopped;
static void stop(int number) {
  (void)number;
  stopped = 1;
}

int main(void) {
  static char output[BUFSIZ];
  setvbuf(stdout, output, _IOLBF, sizeof output);
  struct sigaction action = {.sa_handler = stop};
  sigaction(SIGTERM, &action, NULL);
  control = (control_function*)dlsym(RTLD_DEFAULT, "mallctl");
  print_statistics = (statistics_function*)dlsym(RTLD_DEFAULT, "malloc_stats_print");
  unsigned port;
  int listener = listen_on_loopback(&port);
  printf("ready %u %d\n", port, (int)getpid());
  while (!stopped) {
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (connection >= 0) {
      serve(connection);
      close(connection);
    }
  }
  return 0;
}
