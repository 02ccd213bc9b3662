/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peak_rss FILE CMD... runs CMD, appends one line to FILE, and ends with the status of CMD. The line: the
 * largest resident memory of CMD and its descendants, in KiB; their processor time in microseconds; their page faults.
 * This program is small, because the resident memory of a process before its exec counts, too.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: peak_rss FILE CMD...\n");
    return 2;
  }
  pid_t child = fork();
  if (child == 0) {
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    _exit(127);
  }
  int status;
  struct rusage usage;
  if (child < 0 || wait4(child, &status, 0, &usage) != child) {
    perror("peak_rss");
    return 1;
  }
  FILE* file = fopen(argv[1], "a");
  const long seconds = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec;
  const long microseconds = seconds * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
  if (file == NULL || fprintf(file, "%ld %ld %ld\n", usage.ru_maxrss, microseconds, usage.ru_minflt) < 0 ||
      fclose(file) != 0) {
    perror(argv[1]);
    return 1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
