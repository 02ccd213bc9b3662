// SPDX-License-Identifier: Apache-2.0
//
// /proc/PID/maps and the files behind it.
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/elf/mappings.h"

namespace heaptap::elf {
namespace {

// Takes a number and the `separator` after it off the front of `text`. False: `text` begins with something else.
template <typename Number>
bool TakeNumber(absl::string_view& text, int base, char separator, Number& number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc()) return false;
  text.remove_prefix(end - text.data());
  return absl::ConsumePrefix(&text, absl::string_view(&separator, 1));
}

// START-END PERMISSIONS OFFSET MAJOR:MINOR INODE [blanks PATH]
struct Line {
  Mapping mapping;
  bool executable;
};

std::optional<Line> ParseLine(absl::string_view line) {
  Mapping mapping;
  if (!TakeNumber(line, 16, '-', mapping.start) || !TakeNumber(line, 16, ' ', mapping.end)) return std::nullopt;
  if (mapping.start >= mapping.end || line.size() < 5 || line[4] != ' ') return std::nullopt;
  bool executable = line[2] == 'x';
  line.remove_prefix(5);
  if (!TakeNumber(line, 16, ' ', mapping.file_offset) || !TakeNumber(line, 16, ':', mapping.device_major) ||
      !TakeNumber(line, 16, ' ', mapping.device_minor)) {
    return std::nullopt;
  }
  // Without a path the inode ends the line, on some kernels with a blank after it.
  auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), mapping.inode, 10);
  if (error != std::errc()) return std::nullopt;
  line.remove_prefix(end - line.data());
  if (!line.empty() && line[0] != ' ') return std::nullopt;
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));

  if (executable && !line.empty()) {
    mapping.deleted = line[0] == '/' && absl::ConsumeSuffix(&line, " (deleted)");
    // The newline is the only character that the kernel escapes; a backslash stays as it is.
    mapping.path = absl::StrReplaceAll(line, {{"\\012", "\n"}});
  }
  return Line{std::move(mapping), executable};
}

absl::Status ErrnoStatus(int error, absl::string_view what) {
  // The error of a process that ends meanwhile.
  if (error == ESRCH) return absl::NotFoundError(absl::StrCat(what, ": the process is gone"));
  return absl::ErrnoToStatus(error, what);
}

absl::StatusOr<std::string> ReadMaps(pid_t pid) {
  std::string path = absl::StrCat("/proc/", pid, "/maps");
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
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

// Handles are O_PATH, which opens nothing: no device, FIFO or lease is affected.

// A handle on the file of the mapping's path below `root`, if it is the mapped file. Links in the path are resolved as
// if `root` were the root.
absl::StatusOr<FileDescriptor> FindByPath(int root, const Mapping& mapping, uint64_t resolve) {
  struct open_how how = {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | resolve;
  FileDescriptor handle(static_cast<int>(syscall(SYS_openat2, root, mapping.path.c_str(), &how, sizeof(how))));
  struct stat status;
  if (!handle.valid() || fstat(handle.get(), &status) != 0) return ErrnoStatus(errno, mapping.path);
  if (major(status.st_dev) != mapping.device_major || minor(status.st_dev) != mapping.device_minor ||
      status.st_ino != mapping.inode) {
    return absl::NotFoundError(absl::StrCat(mapping.path, ": the path now names another file"));
  }
  return handle;
}

absl::StatusOr<FileDescriptor> FindMapped(pid_t pid, const Mapping& mapping) {
  std::string entry = absl::StrFormat("/proc/%d/map_files/%x-%x", pid, mapping.start, mapping.end);
  FileDescriptor handle(open(entry.c_str(), O_PATH | O_CLOEXEC));
  if (handle.valid()) return handle;
  int first_error = errno;
  if (first_error == ENOENT || first_error == ESRCH) return ErrnoStatus(first_error, entry);

  // map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE. Without them, try the path.
  FileDescriptor root(open(absl::StrCat("/proc/", pid, "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return ErrnoStatus(first_error, entry);
  absl::StatusOr<FileDescriptor> found = FindByPath(root.get(), mapping, 0);
  if (!found.ok() && !absl::IsNotFound(found.status())) return ErrnoStatus(first_error, entry);
  return found;
}

absl::StatusOr<MappedFile> OpenHandle(const FileDescriptor& handle) {
  struct stat status;
  if (fstat(handle.get(), &status) != 0) return ErrnoStatus(errno, "a mapped file");
  if (!S_ISREG(status.st_mode)) return absl::FailedPreconditionError("the mapped file is not a regular file");
  // O_NONBLOCK: a lease on the file would block open().
  FileDescriptor file(open(absl::StrCat("/proc/self/fd/", handle.get()).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return ErrnoStatus(errno, "a mapped file");
  std::string path = absl::StrCat("/proc/self/fd/", file.get());
  return MappedFile{std::move(file), std::move(path)};
}

}  // namespace

absl::StatusOr<std::vector<Mapping>> ParseMaps(absl::string_view text) {
  std::vector<Mapping> mappings;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    std::optional<Line> parsed = ParseLine(line);
    if (!parsed.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("not a line of /proc/PID/maps: ", absl::CHexEscape(line.substr(0, 80))));
    }
    if (parsed->executable) mappings.push_back(std::move(parsed->mapping));
  }
  return mappings;
}

absl::StatusOr<std::vector<Mapping>> ReadExecutableMappings(pid_t pid) {
  auto text = ReadMaps(pid);
  if (!text.ok()) return text.status();
  if (text->empty()) return absl::NotFoundError(absl::StrCat("/proc/", pid, "/maps: the process has no memory"));
  return ParseMaps(*text);
}

absl::StatusOr<MappedFile> OpenMapped(pid_t pid, const Mapping& mapping) {
  if (mapping.inode == 0) return absl::FailedPreconditionError("the mapping has no file");
  absl::StatusOr<FileDescriptor> handle = FindMapped(pid, mapping);
  return handle.ok() ? OpenHandle(*handle) : handle.status();
}

absl::StatusOr<MappedFile> OpenByPath(const Mapping& mapping) {
  if (mapping.inode == 0 || mapping.deleted)
    return absl::FailedPreconditionError("the mapping has no file, or its file was deleted");
  FileDescriptor root(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return ErrnoStatus(errno, "/");
  absl::StatusOr<FileDescriptor> handle = FindByPath(root.get(), mapping, RESOLVE_CACHED);
  return handle.ok() ? OpenHandle(*handle) : handle.status();
}

}  // namespace heaptap::elf
