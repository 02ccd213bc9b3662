// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/hands.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/user_ids.h"
#include "userspace/process/maps.h"
#include "userspace/process/proc_files.h"
#include "userspace/worker/plain_bytes.h"

namespace heaptap::worker {
namespace {

// The text of /proc/PID/maps is the longest answer.
constexpr uint64_t kMaxAnswerBytes = process::kMaxMapsBytes;

// The user whose processes may look at this one. Does not wait: the kernel takes no lock of the process for it.
std::optional<uid_t> UserOf(pid_t pid) {
  struct stat status;
  if (stat(process::ThreadFile(pid, ".").c_str(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

}  // namespace

bool Hands::IsLate(pid_t pid, base::Instant now) {
  if (late_processes_.empty() && late_users_.empty()) return false;
  const auto is_over = [now](const auto& entry) { return now - entry.second > kRest; };
  std::erase_if(late_processes_, is_over);
  std::erase_if(late_users_, is_over);
  if (late_processes_.contains(pid)) return true;
  const std::optional<uid_t> user = UserOf(pid);
  return user.has_value() && late_users_.contains(ids_.OwnerOf(*user));
}

void Hands::NoteLate(pid_t pid, base::Instant now) {
  late_processes_[pid] = now;
  const std::optional<uid_t> user = UserOf(pid);
  if (user.has_value() && *user != base::kRoot) late_users_[ids_.OwnerOf(*user)] = now;
}

absl::Status Hands::StartHands() {
  absl::StatusOr<std::unique_ptr<Crew>> started = Crew::StartHands();
  if (!started.ok()) return started.status();
  // An order about this process, which does not make them wait, shows that they have started.
  const Answer answer =
      (*started)->Do({.job = Job::kCommandLine, .file = {.pid = getpid()}}, {.time = std::max(kStartTime, patience_)});
  if (!(*started)->is_usable()) return absl::UnavailableError(answer.status.message());
  crew_ = *std::move(started);
  return absl::OkStatus();
}

Answer Hands::Do(const Request& request) {
  const pid_t pid = request.file.pid;
  const auto refusal = [pid] { return absl::StrCat("process ", pid, " does not let heaptap look at it"); };
  if (IsLate(pid, base::Now())) return {.status = absl::UnavailableError(refusal())};
  for (bool is_new = crew_ == nullptr;; is_new = true) {
    if (is_new) {
      if (absl::Status started = StartHands(); !started.ok()) return {.status = started};
    }
    Answer answer = crew_->Do(request, {.time = patience_, .answer_bytes = kMaxAnswerBytes});
    if (crew_->is_usable()) return answer;
    crew_ = nullptr;
    if (absl::IsDeadlineExceeded(answer.status)) {
      NoteLate(pid, base::Now());
      return {.status = absl::DeadlineExceededError(refusal())};
    }
    // They were killed while they were idle, or while they worked.
    if (is_new) return {.status = absl::UnavailableError(answer.status.message())};
  }
}

absl::StatusOr<std::vector<elf::Mapping>> Hands::ReadExecutableMappings(pid_t pid) {
  Answer answer = Do({.job = Job::kMaps, .file = {.pid = pid}});
  if (!answer.status.ok()) return answer.status;
  return process::ParseExecutableMappings(pid, std::move(answer.bytes));
}

absl::StatusOr<process::Facts> Hands::Facts(pid_t pid) {
  const Answer answer = Do({.job = Job::kFacts, .file = {.pid = pid}});
  if (!answer.status.ok()) return answer.status;
  return process::DecodeFacts(answer.bytes);
}

absl::StatusOr<process::StartFacts> Hands::StartFacts(pid_t pid) {
  const Answer answer = Do({.job = Job::kStart, .file = {.pid = pid}});
  if (!answer.status.ok()) return answer.status;
  return process::DecodeStartFacts(answer.bytes);
}

absl::StatusOr<std::map<uint32_t, std::string>> Hands::ThreadNames(pid_t pid, absl::Span<const uint32_t> tids) {
  const Answer answer =
      Do({.job = Job::kThreadNames,
          .file = {.pid = pid},
          .question = std::string(reinterpret_cast<const char*>(tids.data()), tids.size() * sizeof(uint32_t))});
  if (!answer.status.ok()) return answer.status;
  std::map<uint32_t, std::string> names;
  absl::string_view rest = answer.bytes;
  for (uint32_t tid; Take(rest, tid);) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    names[tid] = std::string(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return names;
}

absl::StatusOr<std::map<uint32_t, process::MemoryUse>> Hands::MemoryUse(absl::Span<const uint32_t> pids) {
  // About no process in particular, since none can make the hands wait.
  const Answer answer =
      Do({.job = Job::kMemoryUse,
          .file = {.pid = getpid()},
          .question = std::string(reinterpret_cast<const char*>(pids.data()), pids.size() * sizeof(uint32_t))});
  if (!answer.status.ok()) return answer.status;
  std::map<uint32_t, process::MemoryUse> uses;
  absl::string_view rest = answer.bytes;
  for (const uint32_t pid : pids) {
    if (!Take(rest, uses[pid])) return absl::UnavailableError("the hands sent too few answers");
  }
  return uses;
}

absl::StatusOr<profile::ResidentBytes> Hands::Residency(pid_t pid) {
  const Answer answer = Do({.job = Job::kResidency, .file = {.pid = pid}});
  if (!answer.status.ok()) return answer.status;
  absl::string_view bytes = answer.bytes;
  profile::ResidentBytes resident;
  if (!Take(bytes, resident)) return absl::UnavailableError("the hands sent no numbers");
  return resident;
}

absl::StatusOr<MappedFile> Hands::Look(int identify, pid_t pid, const elf::Mapping& mapping,
                                       const heaptap_file_key* key) {
  const Answer answer = Do({.job = Job::kLook,
                            .file = {.pid = pid, .mapping = mapping},
                            .question = key == nullptr ? "" : std::string(BytesOf(*key)),
                            .descriptors = {identify}});
  if (!answer.status.ok()) return answer.status;
  absl::string_view bytes = answer.bytes;
  MappedFile file;
  if (!Take(bytes, file)) return absl::UnavailableError("the hands sent no file");
  return file;
}

absl::StatusOr<FileVersion> Hands::Version(pid_t pid, const elf::Mapping& mapping) {
  const Answer answer = Do({.job = Job::kVersion, .file = {.pid = pid, .mapping = mapping}});
  if (!answer.status.ok()) return answer.status;
  return DecodeVersion(answer.bytes);
}

absl::StatusOr<heaptap_control> Hands::Control(pid_t pid, const ControlOrder& order, std::function<bool()> is_current) {
  const Answer answer = Do({.job = Job::kControl,
                            .file = {.pid = pid},
                            .question = std::string(BytesOf(order)),
                            .confirm = std::move(is_current)});
  if (!answer.status.ok()) return answer.status;
  heaptap_control control = {};
  absl::string_view bytes = answer.bytes;
  Take(bytes, control);  // none after other orders
  return control;
}

absl::StatusOr<std::vector<heaptap_free>> Hands::PendingFrees(pid_t pid, uint64_t address,
                                                              std::function<bool()> is_current) {
  const Answer answer = Do({.job = Job::kPendingFrees,
                            .file = {.pid = pid},
                            .question = std::string(BytesOf(address)),
                            .confirm = std::move(is_current)});
  if (!answer.status.ok()) return answer.status;
  std::vector<heaptap_free> frees;
  absl::string_view bytes = answer.bytes;
  for (heaptap_free freed; Take(bytes, freed);) frees.push_back(freed);
  return frees;
}

}  // namespace heaptap::worker
