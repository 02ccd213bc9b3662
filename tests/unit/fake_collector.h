// SPDX-License-Identifier: Apache-2.0
//
// A collector whose answers are set by the test.
#ifndef HEAPTAP_TESTS_UNIT_FAKE_COLLECTOR_H_
#define HEAPTAP_TESTS_UNIT_FAKE_COLLECTOR_H_

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/api/collector.h"
#include "userspace/http/client_time.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"

namespace heaptap::api {

// Thread-safe except for its public members: set those while no request runs.
class FakeCollector : public Collector {
 public:
  std::vector<profile::ProcessSummary> processes = {};
  std::vector<profile::EndedProcess> ended = {};
  std::map<pid_t, profile::Snapshot> snapshots = {};
  std::map<pid_t, profile::AllocatorFigures> allocators = {};
  profile::CollectorFigures figures = {};
  absl::Status status = absl::OkStatus();  // of every call

  // `action` is called at the beginning of each call from now on, with the call's name.
  void WhenAsked(std::function<void(const std::string&)> action) {
    std::lock_guard<std::mutex> lock(mutex_);
    when_asked_ = std::move(action);
  }

  // The calls that change something, in order.
  std::vector<std::string> Deeds() {
    std::lock_guard<std::mutex> lock(mutex_);
    return deeds_;
  }

  void ForgetDeeds() {
    std::lock_guard<std::mutex> lock(mutex_);
    deeds_.clear();
  }

  absl::Status Health() const override { return status; }
  bool IsRestricted() const override { return false; }
  absl::StatusOr<std::vector<profile::ProcessSummary>> Processes(http::Asker&) override {
    Called("Processes");
    if (!status.ok()) return status;
    std::lock_guard<std::mutex> lock(mutex_);
    return processes;
  }

  absl::StatusOr<profile::NamedProcess> Find(pid_t pid, http::Asker&) override {
    Called("Find");
    if (!status.ok()) return status;
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::ranges::find(processes, pid, &profile::ProcessSummary::pid);
    if (found == processes.end()) return absl::NotFoundError("no such process");
    return profile::NamedProcess{
        .pid = pid, .process_id = found->process_id, .owner = found->owner, .command = found->command};
  }

  // Replaces the process that has the PID.
  void ReusePid(pid_t pid) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (profile::ProcessSummary& process : processes) {
      if (process.pid == pid) process.process_id += 1000;
    }
    if (auto snapshot = snapshots.find(pid); snapshot != snapshots.end()) snapshot->second.process_id += 1000;
  }

  // What Survey answers from now on.
  void SetSurvey(profile::Survey survey) {
    std::lock_guard<std::mutex> lock(mutex_);
    survey_ = std::move(survey);
  }

  absl::StatusOr<profile::Survey> Survey(const profile::Activities& known, absl::Duration interval,
                                         bool with_paths) override {
    (void)known;
    (void)interval;
    Called(with_paths ? "Survey with paths" : "Survey");
    if (!status.ok()) return status;
    std::lock_guard<std::mutex> lock(mutex_);
    return survey_;
  }

  // How many stacks are not finished yet.
  static constexpr uint64_t kUnfinishedOffset = 1;
  void SetUnfinished(int count) {
    std::lock_guard<std::mutex> lock(mutex_);
    unfinished_ = count;
  }

  // One frame for each stack, at the offset of its id.
  absl::StatusOr<profile::SurveyedStacks> Stacks(const profile::ProcessRef& process,
                                                 const std::vector<uint64_t>& stack_ids) override {
    (void)process;
    profile::SurveyedStacks stacks;
    std::lock_guard<std::mutex> lock(mutex_);
    for (const uint64_t id : stack_ids) {
      const bool is_finished = unfinished_ == 0;
      if (!is_finished) unfinished_--;
      stacks.stacks.push_back(
          {.frames = {{.offset = is_finished ? id : kUnfinishedOffset}}, .is_finished = is_finished});
    }
    return stacks;
  }

  absl::StatusOr<std::optional<uid_t>> Owner(const profile::ProcessRef& process) override {
    Called("Owner");
    if (!status.ok()) return status;
    std::lock_guard<std::mutex> lock(mutex_);
    for (const profile::ProcessSummary& one : processes) {
      if (one.ref() == process) return one.owner;
    }
    return absl::NotFoundError("no such process");
  }

  absl::StatusOr<std::vector<profile::EndedProcess>> Ended() override {
    if (!status.ok()) return status;
    return ended;
  }

  absl::StatusOr<profile::Snapshot> Snapshot(const profile::ProcessRef& process, http::Asker& asker) override {
    Called("Snapshot");
    if (absl::Status paid = asker.Pay(); !paid.ok()) return paid;
    if (!status.ok()) return status;
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = snapshots.find(process.pid);
    if (found == snapshots.end() || !IsCurrent(process)) return absl::NotFoundError("no such process");
    return found->second;
  }

  absl::StatusOr<profile::Snapshot> DetailedSnapshot(const profile::ProcessRef& process, http::Asker& asker) override {
    return Snapshot(process, asker);
  }

  absl::StatusOr<std::string> Dump(const profile::ProcessRef& process, http::Asker&) override {
    if (!status.ok()) return status;
    Note(absl::StrCat("dump ", process.pid));
    if (!snapshots.contains(process.pid)) return absl::InternalError("the disk is full");
    return absl::StrCat("/var/lib/heaptap/heaptap.", process.pid, ".0.m0.heap");
  }

  absl::Status Settle() override {
    if (!status.ok()) return status;
    Note("settle");
    return absl::OkStatus();
  }

  absl::StatusOr<profile::AllocatorFigures> Allocator(const profile::ProcessRef& process) override {
    Called("Allocator");
    if (!status.ok()) return status;
    if (std::lock_guard<std::mutex> lock(mutex_); !IsCurrent(process)) return absl::NotFoundError("no such process");
    auto found = allocators.find(process.pid);
    if (found == allocators.end()) return absl::FailedPreconditionError("its allocator has no control block");
    return found->second;
  }

  absl::StatusOr<profile::ResidentBytes> Resident(const profile::ProcessRef& process, http::Asker&) override {
    Called("Resident");
    if (!status.ok()) return status;
    if (std::lock_guard<std::mutex> lock(mutex_); !IsCurrent(process)) return absl::NotFoundError("no such process");
    return profile::ResidentBytes{.anonymous = 4000, .files = 300, .shared = 20, .stacks = 1};
  }

  absl::Status SetActive(const profile::ProcessRef& process, bool active) override {
    if (!status.ok()) return status;
    if (!allocators.contains(process.pid)) return absl::FailedPreconditionError("its allocator has no control block");
    Note(absl::StrCat("active ", process.pid, " ", active ? "on" : "off"));
    return absl::OkStatus();
  }

  absl::Status SetRate(const profile::ProcessRef& process, std::optional<uint32_t> lg_sample) override {
    if (!status.ok()) return status;
    if (!allocators.contains(process.pid)) return absl::FailedPreconditionError("its allocator has no control block");
    Note(lg_sample.has_value() ? absl::StrCat("rate ", process.pid, " ", *lg_sample)
                               : absl::StrCat("rate ", process.pid, " default"));
    return absl::OkStatus();
  }

  absl::StatusOr<profile::CollectorFigures> Figures(http::Asker&) override {
    Called("Figures");
    if (!status.ok()) return status;
    std::lock_guard<std::mutex> lock(mutex_);
    figures.processes = processes;
    return figures;
  }

 private:
  // With the lock.
  bool IsCurrent(const profile::ProcessRef& process) const {
    return std::any_of(processes.begin(), processes.end(),
                       [&](const profile::ProcessSummary& summary) { return summary.ref() == process; });
  }

  void Note(std::string deed) {
    std::lock_guard<std::mutex> lock(mutex_);
    deeds_.push_back(std::move(deed));
  }

  void Called(const std::string& call) {
    std::function<void(const std::string&)> action;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      action = when_asked_;
    }
    if (action) action(call);
  }

  std::mutex mutex_;
  int unfinished_ = 0;
  profile::Survey survey_;
  std::function<void(const std::string&)> when_asked_;
  std::vector<std::string> deeds_;
};

// A process with one context of `live` bytes in as many objects, and twice that allocated, on the call path `frames`.
inline void AddProcess(FakeCollector& collector, pid_t pid, std::optional<uid_t> owner, std::string command,
                       double live, std::vector<uint64_t> frames = {0x2000, 0x1000},
                       std::vector<elf::Mapping> mappings = {}, std::string executable = "/usr/bin/program") {
  const uint64_t process_id = pid * uint64_t{10};
  collector.processes.push_back({.pid = pid,
                                 .process_id = process_id,
                                 .owner = owner,
                                 .command = command,
                                 .executable = executable,
                                 .recorded_since = absl::FromUnixSeconds(1700000000),
                                 .live_bytes = live,
                                 .live_objects = live,
                                 .peak_bytes = live,
                                 .allocated_bytes = 2 * live,
                                 .allocated_objects = 2 * live,
                                 .contexts = 1,
                                 .samples = 2,
                                 .lg_sample = 19});
  profile::Profile profile = {.pid = pid, .period = 1};
  profile.contexts.push_back(
      {.frames = std::move(frames),
       .threads = {
           {.tid = static_cast<uint32_t>(pid), .live = {1, 1, live, live}, .allocated = {2, 2, 2 * live, 2 * live}}}});
  profile.mappings = std::move(mappings);
  collector.snapshots[pid] = {.profile = std::move(profile),
                              .process_id = process_id,
                              .executable = executable,
                              .time = absl::FromUnixSeconds(1700000100)};
  collector.allocators[pid] = {.options = HEAPTAP_OPTION_PROF,
                               .active = true,
                               .lg_sample = 19,
                               .statistics = heaptap_statistics{300, 200, 50, 0, 0, 0, 0}};
}

}  // namespace heaptap::api

#endif  // HEAPTAP_TESTS_UNIT_FAKE_COLLECTOR_H_
