/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that libc makes and the program frees, and the other way round. Then keeps N blocks of 100 bytes in
 * doors_keep, and prints the sum of their usable sizes: glibc gives a block the 16 bytes that would be left of a free
 * chunk, so the sizes are not all equal.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#define CHECK(condition) ((condition) ? (void)0 : (fprintf(stderr, "%d: " #condition "\n", __LINE__), exit(1)))
#define NOINLINE __attribute__((noinline, noclone))

static void* volatile sink;

NOINLINE static size_t doors_keep(long count) {
  size_t bytes = 0;
  for (long i = 0; i < count; i++) {
    sink = malloc(100);
    bytes += malloc_usable_size(sink);
  }
  return bytes;
}

static int order(const void* a, const void* b) { return strcmp(a, b); }

static void streams(void) {
  /* The program's block grows in libc, and libc's block in the program. */
  char* line = malloc(2);
  size_t size = 2;
  FILE* file = tmpfile();
  CHECK(file != NULL);
  for (int i = 0; i < 2000; i++) fprintf(file, "%d ", i);
  fputs("\nsecond\n", file);
  rewind(file);
  CHECK(getline(&line, &size, file) > 2000 && size > 2000);
  line = realloc(line, size + 10);
  CHECK(getdelim(&line, &size, '\n', file) == 7 && strcmp(line, "second\n") == 0);
  fclose(file);
  free(line);

  char* text = NULL;
  file = open_memstream(&text, &size);
  for (int i = 0; i < 1000; i++) fprintf(file, "%d", i);
  fclose(file);
  CHECK(strlen(text) == size);
  free(text);

  char* buffer = malloc(8192);
  file = fopen("/dev/null", "w");
  setvbuf(file, buffer, _IOFBF, 8192);
  fputs("text", file);
  fclose(file);
  free(buffer);
}

static void texts(void) {
  char* copy = strdup("copy");
  copy = realloc(copy, 100);
  CHECK(strcmp(copy, "copy") == 0);
  free(copy);
  free(strndup("copy", 2));
  free(wcsdup(L"copy"));
  CHECK(asprintf(&copy, "%s %d", "number", 5) == 8);
  free(copy);
  copy = getcwd(NULL, 0);
  free(copy);
  copy = realpath("/usr", NULL);
  free(copy);
  char* numbers = NULL;
  CHECK(sscanf("word", "%ms", &numbers) == 1);
  free(numbers);
}

static void others(void) {
  struct dirent** entries;
  const int count = scandir("/", &entries, NULL, alphasort);
  CHECK(count > 2);
  for (int i = 0; i < count; i++) free(entries[i]);
  free(entries);
  void* tree = NULL;
  tsearch("a", &tree, order);
  tsearch("b", &tree, order);
  tdelete("a", &tree, order);
  tdelete("b", &tree, order);
  setenv("HEAPTAP_TEST", "value", 1);
  unsetenv("HEAPTAP_TEST");
  void* aligned;
  CHECK(posix_memalign(&aligned, 64, 100) == 0 && (size_t)aligned % 64 == 0);
  aligned = realloc(aligned, 5000);
  free(aligned);
  free(aligned_alloc(4096, 4096));
  unsigned char* zeros = calloc(100, 100);
  for (int i = 0; i < 10000; i++) CHECK(zeros[i] == 0);
  memset(zeros, 1, 10000);
  zeros = reallocarray(zeros, 200, 100);
  CHECK(zeros[9999] == 1);
  free(zeros);
  free(NULL);
}

static void* work(void* unused) {
  texts();
  return unused;
}

int main(int count, char** arguments) {
  if (count < 2) return 2;
  for (int i = 0; i < 20; i++) {
    streams();
    texts();
    others();
    pthread_t thread;
    /* own_malloc.c is for one thread, so this one only waits. */
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    pthread_join(thread, NULL);
  }
  printf("%zu\n", doors_keep(atol(arguments[1])));
  return 0;
}
