// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace heaptap::process {
namespace {

absl::Status ErrnoStatus(int error, absl::string_view what) {
  // The error of a process that ends meanwhile.
  if (error == ESRCH) return absl::NotFoundError(absl::StrCat(what, ": the process is gone"));
  return absl::ErrnoToStatus(error, what);
}

// Handles are O_PATH, which opens nothing: no device, FIFO or lease is affected.

// A handle on the file of the mapping's path below `root`, if it is the mapped file. Links in the path are resolved as
// if `root` were the root.
absl::StatusOr<base::FileDescriptor> FindByPath(int root, const elf::Mapping& mapping, uint64_t resolve) {
  struct open_how how = {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | resolve;
  base::FileDescriptor handle(static_cast<int>(syscall(SYS_openat2, root, mapping.path.c_str(), &how, sizeof(how))));
  struct stat status;
  if (!handle.valid() || fstat(handle.get(), &status) != 0) return ErrnoStatus(errno, mapping.path);
  if (major(status.st_dev) != mapping.device_major || minor(status.st_dev) != mapping.device_minor ||
      status.st_ino != mapping.inode) {
    return absl::NotFoundError(absl::StrCat(mapping.path, ": the path now names another file"));
  }
  return handle;
}

absl::StatusOr<base::FileDescriptor> FindMapped(pid_t pid, const elf::Mapping& mapping) {
  std::string entry = absl::StrFormat("/proc/%d/map_files/%x-%x", pid, mapping.start, mapping.end);
  base::FileDescriptor handle(open(entry.c_str(), O_PATH | O_CLOEXEC));
  if (handle.valid()) return handle;
  int first_error = errno;
  if (first_error == ENOENT || first_error == ESRCH) return ErrnoStatus(first_error, entry);

  // map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE. Without them, try the path.
  base::FileDescriptor root(open(absl::StrCat("/proc/", pid, "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return ErrnoStatus(first_error, entry);
  absl::StatusOr<base::FileDescriptor> found = FindByPath(root.get(), mapping, 0);
  if (!found.ok() && !absl::IsNotFound(found.status())) return ErrnoStatus(first_error, entry);
  return found;
}

absl::StatusOr<MappedFile> OpenHandle(const base::FileDescriptor& handle) {
  struct stat status;
  if (fstat(handle.get(), &status) != 0) return ErrnoStatus(errno, "a mapped file");
  if (!S_ISREG(status.st_mode)) return absl::FailedPreconditionError("the mapped file is not a regular file");
  // O_NONBLOCK: a lease on the file would block open().
  base::FileDescriptor file(
      open(absl::StrCat("/proc/self/fd/", handle.get()).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return ErrnoStatus(errno, "a mapped file");
  std::string path = absl::StrCat("/proc/self/fd/", file.get());
  return MappedFile{std::move(file), std::move(path)};
}

}  // namespace

absl::StatusOr<std::string> ReadMaps(pid_t pid) {
  std::string path = absl::StrCat("/proc/", pid, "/maps");
  base::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, path);
  std::string text;
  while (text.size() <= kMaxMapsBytes) {
    char buffer[1 << 16];
    ssize_t count = read(file.get(), buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, path);
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
  return absl::ResourceExhaustedError(absl::StrCat(path, ": more than ", kMaxMapsBytes, " bytes"));
}

absl::StatusOr<std::vector<elf::Mapping>> ParseExecutableMappings(pid_t pid, const absl::StatusOr<std::string>& maps) {
  if (!maps.ok()) return maps.status();
  if (maps->empty())
    return absl::NotFoundError(
        absl::StrCat("process ", pid, " has no memory of its own: it is a kernel thread, or has ended"));
  return elf::ParseMaps(*maps);
}

absl::StatusOr<std::vector<elf::Mapping>> ReadExecutableMappings(pid_t pid) {
  return ParseExecutableMappings(pid, ReadMaps(pid));
}

absl::StatusOr<MappedFile> OpenMapped(pid_t pid, const elf::Mapping& mapping) {
  if (mapping.inode == 0) return absl::FailedPreconditionError("the mapping has no file");
  absl::StatusOr<base::FileDescriptor> handle = FindMapped(pid, mapping);
  return handle.ok() ? OpenHandle(*handle) : handle.status();
}

absl::StatusOr<MappedFile> OpenByPath(const elf::Mapping& mapping) {
  if (mapping.inode == 0 || mapping.deleted)
    return absl::FailedPreconditionError("the mapping has no file, or its file was deleted");
  base::FileDescriptor root(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return ErrnoStatus(errno, "/");
  absl::StatusOr<base::FileDescriptor> handle = FindByPath(root.get(), mapping, RESOLVE_CACHED);
  return handle.ok() ? OpenHandle(*handle) : handle.status();
}

}  // namespace heaptap::process
