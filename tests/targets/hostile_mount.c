/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system of an ordinary user that lets its callers wait, in a mount namespace of its own.
 *
 *   hostile_mount FOLDER LOG OPERATION COMMAND...
 *
 * mounts the file system at FOLDER, which is visible only in the namespace, and runs the command there. A user mounts
 * it in a user namespace; root does what fusermount3 does for the owner of FOLDER, and becomes that owner. The files
 * are "0" to "999", of 4096 bytes each. OPERATION of a file:
 *
 *   flush, read    is never answered; each such request adds its name as a line to LOG. SIGUSR1 to the server, whose
 * process id is the first line of LOG, answers the waiting reads with the bytes of the file LOG.bytes. slow           a
 * read is answered after 180 ms, which is less than the daemon's patience none           all are answered at once
 *
 * The server ends with the command.
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 4096, FIRST_FILE = 2, FILES = 1000, WAITING_MAX = 64, SLOW_MICROSECONDS = 180000 };

static const char* silent;
static char bytes_path[4096];
static int log_fd;
static char contents[FILES][SIZE];
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
  char* end;
  const unsigned long number = strtoul(name, &end, 10);
  if (end == name || *end != '\0' || number >= FILES) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  fuse_ino_t inode = FIRST_FILE + number;
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
  (void)file;
  if (strcmp(silent, "read") != 0) {
    if (strcmp(silent, "slow") == 0) usleep(SLOW_MICROSECONDS);
    const size_t begin = offset < SIZE ? (size_t)offset : SIZE;
    fuse_reply_buf(request, contents[inode - FIRST_FILE] + begin, size < SIZE - begin ? size : SIZE - begin);
    return;
  }
  if (waiting_count < WAITING_MAX) waiting[waiting_count++] = request;
  note("read\n");
}

static void on_write(fuse_req_t request, fuse_ino_t inode, const char* bytes, size_t size, off_t offset,
                     struct fuse_file_info* file) {
  (void)file;
  const size_t begin = offset < SIZE ? (size_t)offset : SIZE;
  memcpy(contents[inode - FIRST_FILE] + begin, bytes, size < SIZE - begin ? size : SIZE - begin);
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
  /* Reads wait beside each other. */
  struct fuse_loop_config* config = fuse_loop_cfg_create();
  fuse_session_loop_mt(session, config);
  _exit(0);
}

/* So that the user may mount a file system. */
static void enter_namespaces(void) {
  char uids[64], gids[64];
  snprintf(uids, sizeof uids, "%d %d 1", (int)getuid(), (int)getuid());
  snprintf(gids, sizeof gids, "%d %d 1", (int)getgid(), (int)getgid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) die("unshare");
  set("/proc/self/setgroups", "deny");
  set("/proc/self/uid_map", uids);
  set("/proc/self/gid_map", gids);
}

/* As fusermount3, a set-user-ID program, does it. Writes the name by which libfuse takes over a mounted file system. */
static void mount_for_owner(const char* folder, char* name, size_t size) {
  char options[128];
  struct stat owner;
  const int device = open("/dev/fuse", O_RDWR);
  if (device < 0 || stat(folder, &owner) != 0 || unshare(CLONE_NEWNS) != 0) die(folder);
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u", device, owner.st_uid, owner.st_gid);
  if (mount("hostile", folder, "fuse", MS_NOSUID | MS_NODEV, options) != 0) die("mount");
  if (setgroups(0, NULL) != 0 || setresgid(owner.st_gid, owner.st_gid, owner.st_gid) != 0 ||
      setresuid(owner.st_uid, owner.st_uid, owner.st_uid) != 0) {
    die("setresuid");
  }
  /* The daemon treats a process that may be traced as its user's. */
  prctl(PR_SET_DUMPABLE, 1);
  snprintf(name, size, "/dev/fd/%d", device);
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const char* folder = argv[1];
  silent = argv[3];
  log_fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd < 0) die("log");
  snprintf(bytes_path, sizeof bytes_path, "%s.bytes", argv[2]);

  char mounted_at[64];
  if (getuid() == 0) {
    mount_for_owner(folder, mounted_at, sizeof mounted_at);
    folder = mounted_at;
  } else {
    enter_namespaces();
  }

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
