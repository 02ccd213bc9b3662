// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/process_facts.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "userspace/elf/file_descriptor.h"

namespace heaptap::service {
namespace {

// The name of a kernel thread can have 64 bytes.
constexpr size_t kMaxCommandBytes = 128;
// "Uid:" is among the first ten lines; later lines have no bound.
constexpr size_t kMaxStatusBytes = 4096;
// A path of up to PATH_MAX for each of the hierarchies, at most a dozen and a few named ones.
constexpr size_t kMaxControlGroupBytes = size_t{16} * 4096;

absl::Status ReadingFailed(pid_t pid, const char* file, int error) {
  if (error == ENOENT || error == ESRCH) return absl::NotFoundError(absl::StrCat("no process ", pid));
  return absl::ErrnoToStatus(error, absl::StrCat("cannot read /proc/", pid, "/", file));
}

// The first `most` bytes of a file of the process whose folder is open.
absl::StatusOr<std::string> ReadFile(int folder, pid_t pid, const char* file, size_t most) {
  const elf::FileDescriptor fd(openat(folder, file, O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ReadingFailed(pid, file, errno);
  std::string text(most, '\0');
  size_t size = 0;
  while (size < most) {
    const ssize_t got = read(fd.get(), text.data() + size, most - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ReadingFailed(pid, file, errno);
    if (got == 0) break;
    size += got;
  }
  text.resize(size);
  return text;
}

// "Uid:" and the real, effective, saved and file system user (proc(5)). The command in "Name:" cannot forge such a
// line: a newline in it is escaped.
bool ParseUser(absl::string_view status, uid_t* user) {
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    if (!absl::ConsumePrefix(&line, "Uid:")) continue;
    const std::vector<absl::string_view> users = absl::StrSplit(line, '\t', absl::SkipEmpty());
    return users.size() == 4 && absl::SimpleAtoi(users[1], user);
  }
  return false;
}

}  // namespace

std::vector<std::string> ControlGroupPaths(absl::string_view text) {
  std::vector<std::string> paths;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() == 3) paths.emplace_back(fields[2]);
  }
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

absl::StatusOr<ProcessFacts> ReadProcessFacts(pid_t pid) {
  const std::string path = absl::StrCat("/proc/", pid);
  // An open /proc/PID stays with its process, even if the PID is reused.
  const elf::FileDescriptor folder(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return ReadingFailed(pid, "", errno);
  absl::StatusOr<std::string> command = ReadFile(folder.get(), pid, "comm", kMaxCommandBytes);
  if (!command.ok()) return command.status();
  const absl::StatusOr<std::string> status = ReadFile(folder.get(), pid, "status", kMaxStatusBytes);
  if (!status.ok()) return status.status();
  const absl::StatusOr<std::string> groups = ReadFile(folder.get(), pid, "cgroup", kMaxControlGroupBytes);
  // A kernel without control groups has no such file.
  if (!groups.ok() && !absl::IsNotFound(groups.status())) return groups.status();

  ProcessFacts facts = {.pid = pid, .command = *std::move(command)};
  if (!facts.command.empty() && facts.command.back() == '\n') facts.command.pop_back();
  if (!ParseUser(*status, &facts.user)) {
    return absl::InternalError(absl::StrCat("/proc/", pid, "/status has no valid Uid line"));
  }
  if (groups.ok()) facts.control_groups = ControlGroupPaths(*groups);
  return facts;
}

}  // namespace heaptap::service
