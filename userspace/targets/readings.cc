// SPDX-License-Identifier: Apache-2.0
#include "userspace/targets/readings.h"

#include <unistd.h>

#include <map>
#include <string>
#include <utility>

#include "userspace/process/control_block.h"
#include "userspace/process/memory_use.h"
#include "userspace/process/script_name.h"
#include "userspace/process/service_name.h"
#include "userspace/process/start_facts.h"
#include "userspace/targets/controls.h"

namespace heaptap::recording {
namespace {

// The most processes that one order reads, each in some tenths of a millisecond.
constexpr size_t kMaxInBatch = 64;

// The longest that one order takes. The processes that are left are read by the next one.
constexpr absl::Duration kBatchTime = absl::Seconds(1);

// The pause between two tries to read a process that was late.
constexpr absl::Duration kRetryPause = absl::Milliseconds(20);

bool MayHaveScript(const process::Facts& facts) {
  return process::IsInterpreter(facts.executable) && process::UnitName(facts.control_groups).empty();
}

std::string ScriptOf(worker::Hands& hands, const process::Facts& facts) {
  if (!MayHaveScript(facts)) return "";
  const absl::StatusOr<process::StartFacts> start = hands.StartFacts(facts.pid);
  return start.ok() ? process::ScriptName(facts.executable, facts.command, start->arguments) : "";
}

}  // namespace

void Readings::ReadWanted() {
  const base::OneThread one_thread(thread_);
  std::map<uid_t, std::shared_ptr<Batch>> batches;  // by who pays
  wanted_.Serve([&](uid_t payer, uint64_t process_id) {
    const Target* const target = means_.targets.Find(process_id);
    if (target == nullptr || target->ending.has_value()) {
      if (round_.has_value()) round_->left.erase(process_id);
    } else if (!under_way_.insert(process_id).second) {
      again_.insert(process_id);
    } else {
      std::shared_ptr<Batch>& batch = batches[payer];
      if (batch == nullptr) batch = std::make_shared<Batch>();
      batch->push_back({.process_id = process_id,
                        .pid = target->pid,
                        .control_address = target->image->control_address,
                        .wants_script = !target->facts->is_script_read});
      if (batch->size() == kMaxInBatch) Begin(std::exchange(batch, nullptr));
    }
  });
  for (const auto& [payer, batch] : batches) {
    if (batch != nullptr) Begin(batch);
  }
}

void Readings::Begin(const std::shared_ptr<Batch>& batch) {
  const auto read = [processes = &means_.processes, batch](worker::Hands& hands, int) {
    const base::Instant end = base::Now() + kBatchTime;
    for (Reading& one : *batch) {
      one.begin = base::Now();
      if (one.begin > end) return;
      one.facts = hands.Facts(one.pid);
      const auto is_current = [&] { return processes->IsCurrent(one.pid, one.process_id); };
      if (one.facts.ok() && one.wants_script) one.script = ScriptOf(hands, *one.facts);
      if (one.facts.ok() && one.control_address != 0) {
        if (absl::StatusOr<heaptap_control> control =
                hands.Control(one.pid, {.address = one.control_address}, is_current);
            control.ok()) {
          one.control = *control;
        }
      }
      one.is_current = is_current();
    }
  };
  means_.orders.Start(batch->front().pid, read, [this, batch] {
    for (Reading& one : *batch) Handle(one);
  });
}

void Readings::Handle(Reading& reading) {
  under_way_.erase(reading.process_id);
  const bool is_wanted_again = again_.erase(reading.process_id) != 0;
  if (round_.has_value()) round_->left.erase(reading.process_id);
  Target* const target = means_.targets.Find(reading.process_id);
  if (target == nullptr || target->ending.has_value()) return;
  if (is_wanted_again) Want(*target);
  target->facts.state_.tried = base::Now();
  // The process was late, or there was no time for it.
  if (worker::MayPass(reading.facts.status())) return;
  if (!reading.is_current) return on_read_(*target, nullptr);
  if (!reading.facts.ok()) {
    target->facts.state_.read = reading.begin;
    target->facts.state_.owner.reset();
    return on_read_(*target, nullptr);
  }
  if (reading.wants_script) target->facts.state_.script = std::move(reading.script);
  target->facts.state_.is_script_read = true;
  Note(*target, *reading.facts, reading.begin);
  // The address may be known only now.
  if (reading.control_address != 0) {
    Controls::NoteReading(*target, reading.control.has_value() ? &*reading.control : nullptr);
  }
  on_read_(*target, &*reading.facts);
}

bool Readings::IsRead(const Target& target, base::Instant since) {
  if (target.facts->read >= since) return true;
  if (base::Now() - target.facts->tried >= kRetryPause) {
    Want(target);
    ReadWanted();
  }
  return target.facts->read >= since;
}

void Readings::Note(Target& target, const process::Facts& facts, base::Instant read) {
  KnownFacts& known = target.facts.state_;
  const bool is_same = !known.is_known() || known.owner == facts.owner;
  known.owner = is_same ? facts.owner : std::nullopt;
  known.read = read;
  known.was_running |= !facts.is_ending;
  if (known.user != facts.user || known.control_groups != facts.control_groups) target.is_saved = false;
  known.user = facts.user;
  known.control_groups = facts.control_groups;
  // Version 1 of control groups shows "/" for a process that is exiting.
  std::string group = process::LongestControlGroup(facts.control_groups);
  if (group.empty() || (group == "/" && known.control_group.has_value())) return;
  known.control_group = std::move(group);
  std::string unit = process::UnitName(facts.control_groups);
  known.service = unit.empty() ? std::nullopt : std::optional(std::move(unit));
}

bool Readings::NoteLook(Target& target, const process::Facts& facts, base::Instant read) {
  const bool is_current = read >= target.books->begun;
  if (is_current) Note(target, facts, read);
  if (!is_current || (MayHaveScript(facts) && !target.facts->is_script_read)) Want(target);
  return is_current;
}

bool Readings::Refresh(base::Instant now, absl::Duration age) {
  const base::OneThread one_thread(thread_);
  // Nobody has asked for the end of the last round.
  if (round_.has_value() && now - round_->begin > kRoundPause) round_.reset();
  if (!round_.has_value()) {
    round_ = Round{.begin = now};
    if (now - all_read_ >= age) {
      all_read_ = now;
      for (const auto& [process_id, target] : means_.targets) {
        if (target.ending.has_value()) continue;
        Want(target);
        round_->left.insert(process_id);
      }
    }
    BeginMemoryUse();
    ReadWanted();
  }
  const bool is_over = round_->left.empty() && !round_->reads_memory;
  if (!is_over && now - round_->begin < kPatience) return false;
  round_.reset();
  return true;
}

// One order for all processes, which no process can delay.
void Readings::BeginMemoryUse() {
  struct Uses {
    std::vector<std::pair<uint64_t, pid_t>> processes;
    std::map<uint64_t, process::MemoryUse> by_id;
  };
  const auto uses = std::make_shared<Uses>();
  for (const auto& [process_id, target] : means_.targets) {
    if (!target.ending.has_value()) uses->processes.emplace_back(process_id, target.pid);
  }
  const auto read = [processes = &means_.processes, uses](worker::Hands& hands, int) {
    std::vector<uint32_t> pids;
    for (const auto& [process_id, pid] : uses->processes) pids.push_back(static_cast<uint32_t>(pid));
    const std::map<uint32_t, process::MemoryUse> by_pid = hands.MemoryUse(pids);
    for (const auto& [process_id, pid] : uses->processes) {
      const auto found = by_pid.find(static_cast<uint32_t>(pid));
      // Checked afterwards: the PID may have been reused meanwhile.
      if (found != by_pid.end() && processes->IsCurrent(pid, process_id)) uses->by_id[process_id] = found->second;
    }
  };
  means_.orders.Start(getpid(), read, [this, uses] {
    for (const auto& [process_id, pid] : uses->processes) {
      const auto found = uses->by_id.find(process_id);
      Target* const target = means_.targets.Find(process_id);
      if (target == nullptr) continue;
      target->facts.state_.memory = found == uses->by_id.end() ? process::MemoryUse() : found->second;
    }
    if (round_.has_value()) round_->reads_memory = false;
  });
}

}  // namespace heaptap::recording
