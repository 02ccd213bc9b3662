// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/facts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/process/proc_files.h"

namespace heaptap::process {
namespace {

// The name of a kernel thread can have 64 bytes.
constexpr size_t kMaxCommandBytes = 128;
// "Uid:" is among the first ten lines; later lines have no bound.
constexpr size_t kMaxStatusBytes = 4096;
// A path of up to PATH_MAX for each hierarchy. There are at most a dozen hierarchies, and a few named ones.
constexpr size_t kMaxControlGroupBytes = size_t{16} * 4096;

absl::Status ReadingFailed(pid_t pid, const char* file, int error) {
  if (error == ENOENT || error == ESRCH) return absl::NotFoundError(absl::StrCat("no process ", pid));
  return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", ThreadFile(pid, file)));
}

// The first `most` bytes of a file in the open folder of a process.
absl::StatusOr<std::string> ReadFile(int folder, pid_t pid, const char* file, size_t most) {
  const base::FileDescriptor fd(openat(folder, file, O_RDONLY | O_CLOEXEC));
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

struct Users {
  uid_t real;
  uid_t effective;
  uid_t saved;
};

// "Uid:" and the real, effective, saved and file system user (proc(5)). The command in "Name:" cannot forge such a
// line: a newline in it is escaped.
std::optional<Users> ParseUsers(absl::string_view status) {
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    if (!absl::ConsumePrefix(&line, "Uid:")) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, '\t', absl::SkipEmpty());
    Users users;
    if (words.size() == 4 && absl::SimpleAtoi(words[0], &users.real) && absl::SimpleAtoi(words[1], &users.effective) &&
        absl::SimpleAtoi(words[2], &users.saved)) {
      return users;
    }
    break;
  }
  return std::nullopt;
}

// The user ids must be equal, and the kernel must let that user inspect the process. Otherwise the files in /proc/PID
// belong to root (proc(5)), as for programs with capabilities, programs that have changed their user, and programs
// whose file the user may not read.
std::optional<uid_t> FindOwner(int folder, const Users& users) {
  struct stat dumpable;
  if (fstatat(folder, "status", &dumpable, 0) != 0) return std::nullopt;
  const bool is_one = users.real == users.effective && users.effective == users.saved;
  if (!is_one || dumpable.st_uid != users.effective) return std::nullopt;
  return users.real;
}

// The path of the line "0::PATH" of /proc/PID/cgroup, which stands for version 2; "": there is no such line.
std::string UnifiedGroupPath(absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&line, "0::")) return std::string(line);
  }
  return "";
}

std::string ReadLink(int folder, const char* name) {
  char target[PATH_MAX];
  const ssize_t length = readlinkat(folder, name, target, sizeof(target));
  return length > 0 ? std::string(target, length) : "";
}

// The facts in the files of one thread.
absl::StatusOr<Facts> FactsOfThread(pid_t pid) {
  // An open folder stays with its thread, even if the number is reused.
  const base::FileDescriptor folder(open(ThreadFile(pid, ".").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return ReadingFailed(pid, "", errno);
  absl::StatusOr<std::string> command = ReadFile(folder.get(), pid, "comm", kMaxCommandBytes);
  if (!command.ok()) return command.status();
  const absl::StatusOr<std::string> status = ReadFile(folder.get(), pid, "status", kMaxStatusBytes);
  if (!status.ok()) return status.status();
  const absl::StatusOr<std::string> groups = ReadFile(folder.get(), pid, "cgroup", kMaxControlGroupBytes);
  // A kernel without control groups has no such file.
  if (!groups.ok() && !absl::IsNotFound(groups.status())) return groups.status();

  const std::optional<Users> users = ParseUsers(*status);
  if (!users.has_value()) return absl::InternalError(absl::StrCat(ThreadFile(pid, "status"), " has no valid Uid line"));
  Facts facts = {.pid = pid,
                 .command = *std::move(command),
                 .executable = ReadLink(folder.get(), "exe"),
                 .user = users->effective,
                 .owner = FindOwner(folder.get(), *users)};
  if (!facts.command.empty() && facts.command.back() == '\n') facts.command.pop_back();
  if (groups.ok()) {
    facts.control_groups = ControlGroupPaths(*groups);
    facts.unified_group = UnifiedGroupPath(*groups);
  }
  return facts;
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

std::optional<std::string> ThreadName(pid_t pid, uint32_t tid) {
  const base::FileDescriptor file(
      open(ThreadFile(pid, absl::StrCat("task/", tid, "/comm")).c_str(), O_RDONLY | O_CLOEXEC));
  char name[kMaxCommandBytes];
  const ssize_t got = file.valid() ? read(file.get(), name, sizeof(name)) : -1;
  if (got < 0) return std::nullopt;
  return std::string(absl::StripSuffix(absl::string_view(name, got), "\n"));
}

// Fields end with NUL, which none of them can contain.
std::string Encode(const Facts& facts) {
  std::string text;
  const auto add = [&](const auto& field) { absl::StrAppend(&text, field, absl::string_view("", 1)); };
  add(facts.pid);
  add(facts.command);
  add(facts.executable);
  add(facts.user);
  add(facts.owner.has_value() ? absl::StrCat(*facts.owner) : "");
  add(facts.unified_group);
  add(facts.is_ending ? 1 : 0);
  for (const std::string& group : facts.control_groups) add(group);
  return text;
}

absl::StatusOr<Facts> DecodeFacts(absl::string_view text) {
  const std::vector<std::string> fields = absl::StrSplit(text, '\0');
  constexpr size_t kOne = 7;  // before the control groups; an empty field follows the last NUL
  Facts facts;
  uid_t owner = 0;
  if (fields.size() <= kOne || !absl::SimpleAtoi(fields[0], &facts.pid) || !absl::SimpleAtoi(fields[3], &facts.user) ||
      (!fields[4].empty() && !absl::SimpleAtoi(fields[4], &owner))) {
    return absl::InvalidArgumentError("not the facts about a process");
  }
  facts.command = fields[1];
  facts.executable = fields[2];
  if (!fields[4].empty()) facts.owner = owner;
  facts.unified_group = fields[5];
  facts.is_ending = fields[6] == "1";
  facts.control_groups.assign(fields.begin() + kOne, fields.end() - 1);
  return facts;
}

absl::StatusOr<Facts> ReadFacts(pid_t pid) {
  const bool is_ending = IsEnding(pid);
  absl::StatusOr<Facts> of_main;
  absl::StatusOr<Facts> facts;
  const bool has_memory = AskThreads(pid, [&](pid_t thread) {
    facts = FactsOfThread(thread);
    if (thread == pid) of_main = facts;
    return facts.ok() && !facts->executable.empty();
  });
  if (!of_main.ok()) return of_main;
  if (!has_memory) facts = of_main;
  facts->is_ending = is_ending;
  // The name of the main thread is that of the process.
  facts->pid = pid;
  facts->command = of_main->command;
  return facts;
}

}  // namespace heaptap::process
