/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system of an ordinary user that lets its callers wait, in a user namespace and a mount namespace of its own.
 *
 *   hostile_mount FOLDER LOG OPERATION COMMAND...
 *
 * mounts the file system at FOLDER, which is visible only in the namespace, and runs the command there. Its files are
 * "0" to "9", of 4096 bytes each. OPERATION (flush, read, none) of a file is never answered; each such request adds its
 * name as a line to LOG. SIGUSR1 to the server, whose process id is the first line of LOG, answers the waiting reads
 * with the bytes of the file LOG.bytes. The server ends with the command.
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 4096, FIRST_FILE = 2, FILES = 10, WAITING_MAX = 64 };

static const char* silent;
static char bytes_path[4096];
static int log_fd;
static fuse_req_t waiting[WAITING_MAX];
static atomic_int waiting_count;

static void die(const char* what) {
  perror(what);
  exit(1);
}

static void note(const char* line) {
  if (write(log_fd, line, strlen(line)) < 0) die("log");
}

static void set(const char* path, const char* text) {
  int fd = open(path, O_WRONLY);
  if (fd < 0 || write(fd, text, strlen(text)) < 0) die(path);
  close(fd);
}

static struct stat describe(fuse_ino_t inode) {
  struct stat status = {.st_ino = inode, .st_nlink = 1, .st_uid = getuid(), .st_gid = getgid()};
  status.st_mode = inode == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0755;
  status.st_size = inode == FUSE_ROOT_ID ? 0 : SIZE;
  return status;
}

static void on_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  (void)parent;
  if (name[0] < '0' || name[0] > '9' || name[1] != '\0') {
    fuse_reply_err(request, ENOENT);
    return;
  }
  fuse_ino_t inode = FIRST_FILE + (fuse_ino_t)(name[0] - '0');
  struct fuse_entry_param entry = {.ino = inode, .attr = describe(inode), .attr_timeout = 60, .entry_timeout = 60};
  fuse_reply_entry(request, &entry);
}

static void on_getattr(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info* file) {
  (void)file;
  struct stat status = describe(inode);
  fuse_reply_attr(request, &status, 60);
}

static void on_setattr(fuse_req_t request, fuse_ino_t inode, struct stat* changes, int which,
                       struct fuse_file_info* file) {
  (void)changes;
  (void)which;
  on_getattr(request, inode, file);
}

static void on_open(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info* file) {
  (void)inode;
  fuse_reply_open(request, file);
}

static void on_read(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset, struct fuse_file_info* file) {
  (void)inode;
  (void)file;
  static const char zeroes[SIZE];
  if (strcmp(silent, "read") != 0) {
    size_t left = offset < SIZE ? (size_t)(SIZE - offset) : 0;
    fuse_reply_buf(request, zeroes, size < left ? size : left);
    return;
  }
  if (waiting_count < WAITING_MAX) waiting[waiting_count++] = request;
  note("read\n");
}

static void on_write(fuse_req_t request, fuse_ino_t inode, const char* bytes, size_t size, off_t offset,
                     struct fuse_file_info* file) {
  (void)inode;
  (void)bytes;
  (void)offset;
  (void)file;
  fuse_reply_write(request, size);
}

static void on_flush(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info* file) {
  (void)inode;
  (void)file;
  if (strcmp(silent, "flush") != 0) {
    fuse_reply_err(request, 0);
    return;
  }
  note("flush\n");
}

static void* answer_reads(void* unused) {
  (void)unused;
  static char bytes[SIZE];
  sigset_t set;
  int number = 0;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  while (sigwait(&set, &number) == 0) {
    int fd = open(bytes_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, bytes, SIZE) < 0) die(bytes_path);
    close(fd);
    for (int i = 0; i < waiting_count; i++) fuse_reply_buf(waiting[i], bytes, SIZE);
    waiting_count = 0;
  }
  return NULL;
}

static void serve(struct fuse_session* session) {
  pthread_t thread;
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &blocked, NULL);
  if (pthread_create(&thread, NULL, answer_reads, NULL) != 0) die("pthread_create");
  fuse_session_loop(session);
  _exit(0);
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const char* folder = argv[1];
  silent = argv[3];
  log_fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd < 0) die("log");
  snprintf(bytes_path, sizeof bytes_path, "%s.bytes", argv[2]);

  char uids[64], gids[64];
  snprintf(uids, sizeof uids, "%d %d 1", (int)getuid(), (int)getuid());
  snprintf(gids, sizeof gids, "%d %d 1", (int)getgid(), (int)getgid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) die("unshare");
  set("/proc/self/setgroups", "deny");
  set("/proc/self/uid_map", uids);
  set("/proc/self/gid_map", gids);

  static const struct fuse_lowlevel_ops operations = {.lookup = on_lookup,
                                                      .getattr = on_getattr,
                                                      .setattr = on_setattr,
                                                      .open = on_open,
                                                      .read = on_read,
                                                      .write = on_write,
                                                      .flush = on_flush};
  char* words[] = {argv[0]};
  struct fuse_args arguments = FUSE_ARGS_INIT(1, words);
  struct fuse_session* session = fuse_session_new(&arguments, &operations, sizeof operations, NULL);
  if (session == NULL || fuse_session_mount(session, folder) != 0) die("mount");

  pid_t command = getpid();
  pid_t server = fork();
  if (server < 0) die("fork");
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != command) return 1;
    char line[32];
    snprintf(line, sizeof line, "%d\n", (int)getpid());
    note(line);
    serve(session);
  }
  close(fuse_session_fd(session));
  execv(argv[4], argv + 4);
  die(argv[4]);
}
