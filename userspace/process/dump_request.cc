// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/dump_request.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/files.h"
#include "userspace/process/memory_group.h"

namespace heaptap::process {
namespace {

// File systems that keep data. Regular files of other file systems control the kernel, and a write by root has root's
// rights there. The numbers without names are missing in <linux/magic.h> of Debian 12; they come from fs/*/ of the
// kernel's source, and from OpenZFS.
constexpr decltype(statfs::f_type) kDataFileSystems[] = {
    EXT4_SUPER_MAGIC,     XFS_SUPER_MAGIC,   BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC,     OVERLAYFS_SUPER_MAGIC,
    TMPFS_MAGIC,          RAMFS_MAGIC,       FUSE_SUPER_MAGIC,  NFS_SUPER_MAGIC,      CIFS_SUPER_MAGIC,
    SMB2_SUPER_MAGIC,     CEPH_SUPER_MAGIC,  V9FS_MAGIC,        MSDOS_SUPER_MAGIC,    EXFAT_SUPER_MAGIC,
    ECRYPTFS_SUPER_MAGIC, NILFS_SUPER_MAGIC, OCFS2_SUPER_MAGIC, REISERFS_SUPER_MAGIC,
    0x2fc12fc1,  // zfs
    0xca451a4e,  // bcachefs
    0x3153464a,  // jfs
    0x01161970,  // gfs2
    0x7366746e,  // ntfs3
};

absl::Status CheckFile(int fd) {
  struct stat status;
  struct statfs system;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || fstatfs(fd, &system) != 0 ||
      std::ranges::count(kDataFileSystems, system.f_type) == 0) {
    return absl::InvalidArgumentError("the file for the dump is not a regular file of a file system that keeps data");
  }
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || (flags & O_PATH) != 0) {
    return absl::InvalidArgumentError("the file for the dump is not open for writing");
  }
  return absl::OkStatus();
}

bool IsEventfd(int fd) {
  char link[PATH_MAX];
  const ssize_t length = readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), link, sizeof(link));
  return absl::string_view(link, length > 0 ? length : 0) == "anon_inode:[eventfd]";
}

// A write to a full eventfd would block. A process that has filled its own eventfd does not wait for the answer.
void Wake(int fd) {
  pollfd writable = {fd, POLLOUT, 0};
  if (poll(&writable, 1, 0) != 1) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(fd, &one, sizeof(one));
}

absl::StatusOr<base::FileDescriptor> TakeEvent(const Handle& process, const heaptap_dump_request& request) {
  absl::StatusOr<base::FileDescriptor> event = process.TakeDescriptor(request.event_fd);
  if (event.ok() && !IsEventfd(event->get())) {
    return absl::InvalidArgumentError("the descriptor to signal is not an eventfd");
  }
  return event;
}

// Whether the process still waits. Once it has given up or has its answer, its descriptor numbers may belong to other
// files: call this after the descriptors have been copied and before they are used.
absl::Status CheckStillAsked(const Handle& process, uint64_t address, const heaptap_dump_request& request) {
  heaptap_dump_request now;
  if (absl::Status status = process.Read(address, &now, sizeof(now)); !status.ok()) return status;
  if (now.sequence == request.sequence && now.answered != request.sequence) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("process ", process.pid(), " no longer waits for its dump"));
}

// Writes the collector's part of the request, `answered` last, and wakes the process.
absl::Status Answer(const Handle& process, uint64_t address, const heaptap_dump_request& request, int event, int error,
                    const profile::LeakSummary& leaks) {
  heaptap_dump_request answer = request;
  answer.error = error;
  answer.leak_bytes = leaks.bytes;
  answer.leak_objects = leaks.objects;
  answer.leak_contexts = leaks.contexts;
  constexpr size_t kBegin = offsetof(heaptap_dump_request, error);
  constexpr size_t kEnd = offsetof(heaptap_dump_request, answered);
  absl::Status status = process.Write(address + kBegin, reinterpret_cast<const char*>(&answer) + kBegin, kEnd - kBegin);
  if (!status.ok()) return status;
  status = process.Write(address + kEnd, &request.sequence, sizeof(request.sequence));
  if (!status.ok()) return status;
  Wake(event);
  return absl::OkStatus();
}

// The pages of a file in memory are charged to the writer and stay as long as the process likes, so the process must be
// charged for them.
bool LiesInMemory(int fd) {
  struct statfs system;
  return fstatfs(fd, &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

// Replaces the contents of the file. Returns 0 or an errno value. An earlier dump is kept if there is no room for the
// new one; if the write fails later, the file is left empty.
int Replace(int fd, absl::string_view contents) {
  // Not every file system supports fallocate.
  if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(std::max<size_t>(contents.size(), 1))) != 0 &&
      (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    const int error = errno;
    // Releases what was reserved before the failure.
    struct stat status;
    [[maybe_unused]] const int ignored = fstat(fd, &status) == 0 ? ftruncate(fd, status.st_size) : 0;
    return error;
  }
  // ftruncate comes last: an empty file would lose the reserved space.
  int error = base::WriteAll(fd, contents);
  if (error == 0 && ftruncate(fd, static_cast<off_t>(contents.size())) != 0) error = errno;
  if (error != 0) {
    [[maybe_unused]] const int ignored = ftruncate(fd, 0);
  }
  return error;
}

}  // namespace

heaptap_dump_request RequestOf(const heaptap_event& event) {
  heaptap_dump_request asked;
  static_assert(sizeof(asked) <= sizeof(event.memory));
  memcpy(&asked, event.memory, sizeof(asked));
  return asked;
}

absl::StatusOr<heaptap_dump_request> ReadDumpRequest(const Handle& process, uint64_t address) {
  heaptap_dump_request request;
  if (absl::Status status = process.Read(address, &request, sizeof(request)); !status.ok()) return status;
  if (request.sequence != 0 && request.answered == request.sequence) {
    return absl::AlreadyExistsError(absl::StrCat("process ", process.pid(), " already has its dump"));
  }
  if (request.sequence == 0 || request.file_fd < 0 || request.event_fd < 0) {
    return absl::InvalidArgumentError(absl::StrCat("process ", process.pid(), " sent an invalid dump request"));
  }
  return request;
}

absl::Status AnswerWithError(const Handle& process, uint64_t address, const heaptap_dump_request& request, int error) {
  absl::StatusOr<base::FileDescriptor> event = TakeEvent(process, request);
  if (!event.ok()) return event.status();
  if (absl::Status asked = CheckStillAsked(process, address, request); !asked.ok()) return asked;
  return Answer(process, address, request, event->get(), error, profile::LeakSummary{});
}

absl::Status AnswerWithDump(const Handle& process, uint64_t address, const heaptap_dump_request& request,
                            absl::string_view contents, const profile::LeakSummary& leaks,
                            absl::FunctionRef<bool()> is_current) {
  absl::StatusOr<base::FileDescriptor> event = TakeEvent(process, request);
  if (!event.ok()) return event.status();
  absl::StatusOr<base::FileDescriptor> file = process.TakeDescriptor(request.file_fd);
  if (!is_current())
    return absl::UnavailableError(absl::StrCat("process ", process.pid(), " now runs another program"));
  if (absl::Status asked = CheckStillAsked(process, address, request); !asked.ok()) return asked;
  absl::Status status = file.ok() ? CheckFile(file->get()) : file.status();
  int error = status.ok() ? 0 : EBADF;
  if (status.ok() && LiesInMemory(file->get())) {
    status = JoinMemoryGroup(process.pid());
    if (!status.ok()) error = EPERM;
  }
  if (status.ok()) {
    error = Replace(file->get(), contents);
    if (error != 0) {
      status = absl::FailedPreconditionError(
          absl::StrCat("cannot write the dump that process ", process.pid(), " asked for: ", strerror(error)));
    }
  }
  absl::Status answered = Answer(process, address, request, event->get(), error, leaks);
  return status.ok() ? answered : status;
}

}  // namespace heaptap::process
