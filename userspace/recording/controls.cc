// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/controls.h"

#include <unistd.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/messages.h"
#include "userspace/process/control_block.h"
#include "userspace/process/facts.h"
#include "userspace/process/service_name.h"

namespace heaptap::recording {
namespace {

// A bound, because any process can take the name of a collector.
constexpr size_t kMaxCollectorsReported = 16;

// A bound, because any process can make its control block unusable.
constexpr size_t kMaxFailuresReported = 16;

// Whether an order may succeed now: heaptap, or its hands, had no descriptor or no memory for a moment.
bool MaySucceedAgain(const absl::Status& status) {
  return !status.ok() && !absl::IsNotFound(status) && !absl::IsDeadlineExceeded(status);
}

}  // namespace

void Controls::Use(Target& target, const heaptap_control& control, uint64_t address) {
  target.started = true;
  target.control_address = address;
  const process::ControlFacts facts = process::FactsOf(control);
  target.allocator = facts.allocator;
  target.max_frames = facts.max_frames;
  target.raw = facts.raw;
  target.prof_leak = facts.prof_leak;
  target.own_lg_sample = facts.lg_sample;
  // A system-wide recording includes processes that another collector records, but leaves them in that one's control.
  target.active = control.active != 0;
  target.allocator_name = process::AllocatorName(control);
  target.other_collector = options_.is_system_wide ? OtherCollector(control) : 0;
  target.foreign = target.other_collector != 0;
  if (target.foreign && collectors_reported_.size() < kMaxCollectorsReported &&
      collectors_reported_.insert(target.other_collector).second) {
    base::Say(absl::StrCat("process ", target.pid, " (", target.name, ") is also recorded by heaptap process ",
                           target.other_collector,
                           ", which sets its rate, answers its requests and writes its last dump"));
  }
  const bool is_up_to_date = control.collector_pid == static_cast<uint32_t>(getpid()) &&
                             control.collector_lg_sample == target.CollectorRate() && control.collector_follows != 0;
  if (is_up_to_date) target.written_rate = target.WantedRate();
  if (!target.foreign && !is_up_to_date) Write(target);
}

void Controls::UseFound(Target& target, const heaptap_control& control, uint64_t address) {
  const absl::Status counted =
      processes_.CountUnseenBeginning(target.pid, target.process_id, control.statistics.active);
  if (!counted.ok()) Report(counted.message());
  target.was_found = true;
  Use(target, control, address);
}

absl::Status Controls::TakeFound(Target& target, uint64_t address) {
  const uint64_t before = std::exchange(target.control_address, address);
  const absl::StatusOr<heaptap_control> control = Order(target, worker::ControlVerb::kRead);
  if (control.ok()) {
    UseFound(target, *control, address);
  } else {
    target.control_address = before;
  }
  return control.status();
}

absl::StatusOr<heaptap_control> Controls::Order(Target& target, worker::ControlVerb verb, uint32_t argument) {
  const worker::ControlOrder order = {.verb = verb,
                                      .argument = argument,
                                      .follows = options_.follow,
                                      .collector = static_cast<uint32_t>(getpid()),
                                      .address = target.control_address};
  const auto do_it = [&] {
    return hands_.Control(target.pid, order, [&] { return processes_.IsCurrent(target.pid, target.process_id); });
  };
  absl::StatusOr<heaptap_control> control = do_it();
  if (MaySucceedAgain(control.status())) control = do_it();
  if (absl::IsDeadlineExceeded(control.status()) && !std::exchange(target.was_late, true)) {
    Report(absl::StrCat(control.status().message(),
                        ": its rate and its prof.active cannot be set until it does; heaptap tries again"));
  }
  return control;
}

void Controls::Write(Target& target) {
  if (target.control_address == 0) return;
  const absl::Status status = Order(target, worker::ControlVerb::kTake, target.CollectorRate()).status();
  // A process that has ended needs no rate.
  const bool is_refused = !status.ok() && !absl::IsNotFound(status);
  // The next try may succeed.
  if (is_refused && !worker::MayPass(status) && !target.is_unwritten) {
    Report(absl::StrCat("process ", target.pid, " (", target.name, ") cannot be told its rate and its collector: ",
                        status.message(), "; it keeps its own rate, and its own dumps may fail"));
  }
  target.is_unwritten = is_refused;
  if (status.ok()) target.written_rate = target.WantedRate();
}

void Controls::Release(Target& target) {
  if (target.control_address == 0) return;
  target.is_unwritten = false;
  const absl::Status status = Order(target, worker::ControlVerb::kRelease).status();
  // A process that has ended has nothing to restore.
  if (status.ok() || absl::IsNotFound(status) || target.foreign) return;
  Report(absl::StrCat("process ", target.pid, " (", target.name, ") still names this collector: ", status.message(),
                      "; the next one takes it over"));
}

void Controls::Report(absl::string_view line) {
  if (failures_reported_ == kMaxFailuresReported) return;
  failures_reported_++;
  base::Say(line);
}

void Controls::AnswerTables(Target& target, uint32_t asked) {
  if (target.control_address == 0 || target.foreign) return;
  // Fails if the process has ended; then it no longer waits.
  Order(target, worker::ControlVerb::kTablesReady, asked).status().IgnoreError();
}

pid_t Controls::OtherCollector(const heaptap_control& control) {
  const auto pid = static_cast<pid_t>(control.collector_pid);
  // A killed collector leaves its PID behind, which another program may have by now.
  return pid > 0 && pid != getpid() && IsCollector(pid) ? pid : 0;
}

bool Controls::IsCollector(pid_t pid) {
  const absl::StatusOr<process::Facts> facts = hands_.Facts(pid);
  return facts.ok() && facts->command == process::kCollectorName;
}

void Controls::ReadActive(Target& target) {
  if (target.ending.has_value() || target.control_address == 0) return;
  const absl::StatusOr<heaptap_control> control = Order(target, worker::ControlVerb::kRead);
  target.active.reset();
  if (!control.ok()) return;
  target.active = control->active != 0;
  target.allocator_name = process::AllocatorName(*control);
}

bool Controls::NoteOwner(Target& target) {
  if (target.ending.has_value()) return true;
  const absl::StatusOr<process::Facts> facts = hands_.Facts(target.pid);
  if (worker::MayPass(facts.status())) return false;
  if (!processes_.IsCurrent(target.pid, target.process_id)) return true;
  const std::optional<uid_t> owner = facts.ok() ? facts->owner : std::nullopt;
  const bool is_same = !target.owner_known || target.owner == owner;
  target.owner = is_same ? owner : std::nullopt;
  target.owner_known = true;
  if (!facts.ok()) return true;
  // Version 1 of control groups shows "/" for a process that is exiting.
  std::string group = process::LongestControlGroup(facts->control_groups);
  if (group.empty() || (group == "/" && target.control_group.has_value())) return true;
  target.control_group = std::move(group);
  std::string unit = process::UnitName(facts->control_groups);
  target.service = unit.empty() ? std::nullopt : std::optional(std::move(unit));
  return true;
}

}  // namespace heaptap::recording
