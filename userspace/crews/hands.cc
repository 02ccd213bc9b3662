// SPDX-License-Identifier: Apache-2.0
#include "userspace/crews/hands.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/process/maps.h"
#include "userspace/worker/plain_bytes.h"

namespace heaptap::worker {
namespace {

// The text of /proc/PID/maps is the longest answer.
constexpr uint64_t kMaxAnswerBytes = process::kMaxMapsBytes;

}  // namespace

absl::Status Hands::StartHands() {
  absl::StatusOr<std::unique_ptr<Crew>> started = Crew::StartHands();
  has_answered_ = false;
  if (!started.ok()) return started.status();
  crew_ = *std::move(started);
  return absl::OkStatus();
}

void Hands::EndHands() {
  processor_wait_ += crew_->TakeProcessorWait();
  crew_ = nullptr;
}

absl::Duration Hands::TakeProcessorWait() {
  if (crew_ != nullptr) processor_wait_ += crew_->TakeProcessorWait();
  return std::exchange(processor_wait_, {});
}

absl::Status Hands::AwaitHands() {
  if (has_answered_) return absl::OkStatus();
  // An order about this process, which does not make them wait, shows that they have started.
  const Answer answer = crew_->Do({.job = Job::kCommandLine, .file = {.pid = getpid()}},
                                  {.time = std::max(kStartTime, bounds_.patience)});
  has_answered_ = crew_->is_usable();
  if (has_answered_) return absl::OkStatus();
  EndHands();
  return absl::UnavailableError(answer.status.message());
}

Answer Hands::Do(const Request& request) {
  const pid_t pid = request.file.pid;
  if (!late_.IsDue(pid, base::Now())) {
    return {.status = absl::UnavailableError(absl::StrCat("process ", pid, " was late to answer; trying again soon"))};
  }
  for (bool is_new = crew_ == nullptr;; is_new = true) {
    absl::Status started = is_new ? StartHands() : absl::OkStatus();
    if (started.ok()) started = AwaitHands();
    if (!started.ok()) return {.status = started};
    Answer answer =
        crew_->Do(request, {.time = bounds_.patience, .longest = bounds_.longest, .answer_bytes = kMaxAnswerBytes});
    if (crew_->is_usable()) {
      if (!late_.empty()) late_.Succeed(pid);
      return answer;
    }
    EndHands();
    if (absl::IsDeadlineExceeded(answer.status)) {
      late_.Fail(pid, base::Now());
      // At once, so that the next call need not wait for their start.
      StartHands().IgnoreError();
      return {.status = absl::DeadlineExceededError(
                  absl::StrCat("process ", pid, " did not answer within ", absl::FormatDuration(bounds_.patience)))};
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

std::map<uint32_t, process::MemoryUse> Hands::MemoryUse(absl::Span<const uint32_t> pids) {
  // Each takes some tens of microseconds.
  constexpr size_t kAtOnce = 256;
  std::map<uint32_t, process::MemoryUse> uses;
  for (; !pids.empty(); pids.remove_prefix(std::min(kAtOnce, pids.size()))) {
    // About no process in particular, since none can make the hands wait.
    const absl::Span<const uint32_t> some = pids.subspan(0, kAtOnce);
    const Answer answer =
        Do({.job = Job::kMemoryUse,
            .file = {.pid = getpid()},
            .question = std::string(reinterpret_cast<const char*>(some.data()), some.size() * sizeof(uint32_t))});
    if (!answer.status.ok()) break;
    absl::string_view rest = answer.bytes;
    process::MemoryUse use;
    for (size_t i = 0; i < some.size() && Take(rest, use); i++) uses[some[i]] = use;
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

absl::Status Hands::GiveArea(pid_t pid, const AreaSocket& socket, int area, std::function<bool()> is_current) {
  Request request = {.job = Job::kGiveArea,
                     .file = {.pid = pid},
                     .question = std::string(BytesOf(socket)),
                     .confirm = std::move(is_current)};
  if (area >= 0) request.descriptors = {area};
  return Do(request).status;
}

}  // namespace heaptap::worker
