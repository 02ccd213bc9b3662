// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/proc_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "userspace/process/short_file.h"

namespace heaptap::process {
namespace {

constexpr char kReady = 'R';
constexpr char kZombie = 'Z';
constexpr char kDead = 'X';

// The kernel's flag of a task that has begun to exit: PF_EXITING in include/linux/sched.h.
constexpr uint32_t kExiting = 4;

// What follows "PID (COMMAND) " in the text of /proc/PID/stat (proc(5)). The command may hold parentheses. "": the
// thread has ended.
absl::string_view AfterCommand(absl::string_view stat) {
  const size_t end = stat.rfind(") ");
  return end == absl::string_view::npos ? "" : stat.substr(end + 2);
}

char StateIn(absl::string_view stat) {
  const absl::string_view words = AfterCommand(stat);
  return words.empty() ? kDead : words[0];
}

// The flags are the seventh word.
bool IsExiting(absl::string_view stat) {
  constexpr size_t kFlags = 6;
  const std::vector<absl::string_view> words = absl::StrSplit(AfterCommand(stat), absl::MaxSplits(' ', kFlags + 1));
  uint32_t flags = 0;
  return words.size() <= kFlags || !absl::SimpleAtoi(words[kFlags], &flags) || (flags & kExiting) != 0;
}

bool HasEnded(absl::string_view stat) { return StateIn(stat) == kZombie || StateIn(stat) == kDead; }

std::vector<pid_t> ThreadsOf(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code error;
  // A range-based for would throw if a later read of the folder failed.
  for (std::filesystem::directory_iterator entry(ThreadFile(pid, "task"), error), end; !error && entry != end;
       entry.increment(error)) {
    pid_t thread = 0;
    if (absl::SimpleAtoi(entry->path().filename().string(), &thread)) threads.push_back(thread);
  }
  return threads;
}

// The living threads of a process whose main thread has ended. Empty if the main thread lives, or all threads have
// ended.
std::vector<pid_t> SuccessorsOf(pid_t pid) {
  std::vector<pid_t> threads;
  const std::string main_thread = ReadShortFile(ThreadFile(pid, "stat"));
  if (main_thread.empty() || !HasEnded(main_thread)) return threads;
  for (const pid_t thread : ThreadsOf(pid)) {
    if (thread != pid && !HasEnded(ReadShortFile(ThreadFile(thread, "stat")))) threads.push_back(thread);
  }
  return threads;
}

absl::StatusOr<std::string> ReadThreadFile(pid_t thread, absl::string_view name, size_t most) {
  const std::string path = ThreadFile(thread, name);
  const base::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return absl::ErrnoToStatus(errno, path);
  std::string text;
  while (text.size() < most) {
    char buffer[1 << 16];
    const ssize_t got = read(file.get(), buffer, std::min(sizeof(buffer), most - text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, path);
    if (got == 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

// The first two numbers of /proc/TID/schedstat.
struct Schedstat {
  absl::Duration used;
  absl::Duration waited;
};
std::optional<Schedstat> ReadSchedstat(pid_t thread) {
  const std::string text = ReadShortFile(ThreadFile(thread, "schedstat"));
  const std::vector<absl::string_view> numbers = absl::StrSplit(text, ' ');
  int64_t used = 0;
  int64_t waited = 0;
  if (numbers.size() < 2 || !absl::SimpleAtoi(numbers[0], &used) || !absl::SimpleAtoi(numbers[1], &waited)) {
    return std::nullopt;
  }
  return Schedstat{.used = absl::Nanoseconds(used), .waited = absl::Nanoseconds(waited)};
}

}  // namespace

std::string ThreadFile(pid_t thread, absl::string_view name) { return absl::StrCat("/proc/", thread, "/", name); }

bool AskThreads(pid_t pid, absl::FunctionRef<bool(pid_t thread)> ask) {
  if (ask(pid)) return true;
  // /proc/PID/task/TID certainly belongs to the process, but has no map_files; /proc/TID has all files that /proc/PID
  // has. The TID of a thread that ends meanwhile may pass to another process.
  for (const pid_t thread : SuccessorsOf(pid)) {
    if (ask(thread) && access(ThreadFile(pid, absl::StrCat("task/", thread)).c_str(), F_OK) == 0) return true;
  }
  return false;
}

bool IsEnding(pid_t pid) {
  if (!IsExiting(ReadShortFile(ThreadFile(pid, "stat")))) return false;
  return std::ranges::all_of(ThreadsOf(pid), [pid](pid_t thread) {
    return IsExiting(ReadShortFile(ThreadFile(pid, absl::StrCat("task/", thread, "/stat"))));
  });
}

bool HasMainThread(pid_t pid) { return !HasEnded(ReadShortFile(ThreadFile(pid, "stat"))); }

std::optional<Scheduling> SchedulingOf(pid_t thread) {
  const char state = StateIn(ReadShortFile(ThreadFile(thread, "stat")));
  const std::optional<Schedstat> figures = ReadSchedstat(thread);
  if (!figures.has_value()) return std::nullopt;
  return Scheduling{.is_ready = state == kReady, .used = figures->used};
}

absl::Duration ProcessorWaitOf(pid_t thread) { return ReadSchedstat(thread).value_or(Schedstat{}).waited; }

std::optional<uid_t> UserOf(pid_t pid) {
  struct stat status;
  if (stat(ThreadFile(pid, ".").c_str(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

base::FileDescriptor OpenProcFile(pid_t pid, absl::string_view name, int flags) {
  base::FileDescriptor file;
  int error = 0;
  const bool is_open = AskThreads(pid, [&](pid_t thread) {
    file = base::FileDescriptor(open(ThreadFile(thread, name).c_str(), flags));
    if (thread == pid) error = errno;
    return file.valid();
  });
  if (is_open) return file;
  errno = error;
  return {};
}

absl::StatusOr<std::string> ReadProcFile(pid_t pid, absl::string_view name, size_t most) {
  absl::StatusOr<std::string> of_main;
  absl::StatusOr<std::string> text;
  const bool is_read = AskThreads(pid, [&](pid_t thread) {
    text = ReadThreadFile(thread, name, most);
    if (thread == pid) of_main = text;
    return text.ok() && !text->empty();
  });
  return is_read ? text : of_main;
}

}  // namespace heaptap::process
