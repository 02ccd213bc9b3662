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
#include "userspace/process/proc_files.h"

namespace heaptap::process {
namespace {

absl::Status ErrnoStatus(int error, absl::string_view what) {
  // A process that ends meanwhile gives this error.
  if (error == ESRCH) return absl::NotFoundError(absl::StrCat(what, ": the process is gone"));
  return absl::ErrnoToStatus(error, what);
}

// Handles are O_PATH, which opens nothing: no device, FIFO or lease is affected.

// A handle on the file at the mapping's path below `root`, if that file is the mapped one. Links in the path are
// resolved as if `root` were the root.
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
  base::FileDescriptor handle = OpenProcFile(pid, MapFile(mapping), O_PATH | O_CLOEXEC);
  if (handle.valid()) return handle;
  int first_error = errno;
  const std::string entry = ThreadFile(pid, MapFile(mapping));
  if (first_error == ENOENT || first_error == ESRCH) return ErrnoStatus(first_error, entry);

  // map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE. Without them, try the path.
  const base::FileDescriptor root = OpenProcFile(pid, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
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

std::string MapFile(const elf::Mapping& mapping) {
  return absl::StrFormat("map_files/%x-%x", mapping.start, mapping.end);
}

absl::StatusOr<std::string> ReadMaps(pid_t pid) {
  absl::StatusOr<std::string> text = ReadProcFile(pid, "maps", kMaxMapsBytes + 1);
  const std::string path = ThreadFile(pid, "maps");
  if (absl::IsNotFound(text.status())) return absl::NotFoundError(absl::StrCat(path, ": the process is gone"));
  if (text.ok() && text->size() > kMaxMapsBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": more than ", kMaxMapsBytes, " bytes"));
  }
  return text;
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
  if (handle.ok()) return OpenHandle(*handle);
  // A path that is not in the kernel's cache (EAGAIN) counts as gone.
  if (absl::IsFailedPrecondition(handle.status()) || absl::IsPermissionDenied(handle.status())) return handle.status();
  return absl::NotFoundError(absl::StrCat(mapping.path, " can no longer be opened"));
}

}  // namespace heaptap::process
