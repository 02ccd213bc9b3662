/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set-user-ID program that has a file of its owner open for writing, as descriptor 3:
 *
 *   hostile_victim FILE   -> "open 3"
 *
 * It stays until it is killed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  printf("open %d\n", open(argv[1], O_RDWR));
  fflush(stdout);
  for (;;) pause();
}
