// SPDX-License-Identifier: Apache-2.0
#include "userspace/dumps/requests.h"

#include <errno.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/user_ids.h"
#include "userspace/formats/heap_v2.h"
#include "userspace/json/log_json.h"
#include "userspace/json/recent_json.h"
#include "userspace/process/dump_request.h"
#include "userspace/tables/raw_stacks.h"
#include "userspace/worker/answer_job.h"

namespace heaptap::recording {
namespace {

// Each user's account of the recording's thread: for profiles that the user's processes or clients ask for. The profile
// of a large program takes a tenth of a second, so a user can have one of these a second, or several of small programs
// at once.
constexpr double kProfileShare = 0.1;
constexpr absl::Duration kProfileBurst = absl::Milliseconds(100);

// The pause between two triggered dumps of one process in a system-wide recording.
constexpr absl::Duration kTriggerPause = absl::Seconds(1);

}  // namespace

Requests::Requests(const Means& means, bool is_system_wide) : means_(means), answers_(means.errands) {
  if (is_system_wide) accounts_.emplace(base::SubordinateIds::OfSystem(), kProfileShare, kProfileBurst);
}

void Requests::WriteDue(Target& target, base::Instant now) {
  Requested& requested = target.requested.state_;
  if (requested.postponed.has_value() && now - requested.triggered >= kTriggerPause) {
    HandleTrigger(target, *requested.postponed);
  }
  const absl::Duration every = target.policy->every;
  if (every <= absl::ZeroDuration() || now - requested.scheduled < every) return;
  requested.scheduled = now;
  if (means_.dumps.HasProfile(target)) means_.dumps.Write(target, HEAPTAP_DUMP_INTERVAL);
}

bool Requests::HasOwnFinal(Target& target) {
  if (answers_.WaitFor(target.process_id) != 0) {
    failed_ = true;
    target.requested.state_.own_final = false;
  }
  return target.requested->own_final;
}

Requests::Reply Requests::Refusal(const Question& question, int error) {
  const worker::DumpAnswer answer = {
      .address = question.event.argument, .sequence = question.request.sequence, .error = error};
  return {.answer = worker::AnswerQuestion(answer, "")};
}

void Requests::MakeRecords(const Target& target, const Question& question) {
  const auto reply = std::make_shared<Reply>(Refusal(question, EIO));
  const auto use = [reply, question](const profile::SampleRecords& records) {
    const auto write = question.request.kind == HEAPTAP_ASK_LOG ? json::LogJson : json::RecentJson;
    const worker::DumpAnswer answer = {.address = question.event.argument, .sequence = question.request.sequence};
    *reply = {.answer = worker::AnswerQuestion(answer, write(records)), .has_contents = true};
  };
  const std::optional<uid_t> user = BeginMaking(target);
  means_.dumps.orders().MakeRecords(
      means_.dumps.Plan(target), question.request.argument, use,
      [this, user, reply, target, question](const absl::Status& status, absl::Duration used) {
        if (!status.ok()) base::Say(status.message());
        EndMaking(target, user, used);
        Answer(target, question, std::move(*reply));
      });
}

std::optional<uid_t> Requests::BeginMaking(const Target& target) { return *making_.insert(AccountOf(target)); }

void Requests::EndMaking(const Target& target, std::optional<uid_t> user, absl::Duration used) {
  making_.erase(making_.find(user));
  Charge(target, used);
}

void Requests::MakeDump(const Target& target, const Question& question) {
  const auto reply = std::make_shared<Reply>(Refusal(question, EIO));
  const auto use = [reply, question, raw = target.image->raw](profile::Profile& profile) {
    profile.raw = raw;
    const worker::DumpAnswer answer = {
        .address = question.event.argument, .sequence = question.request.sequence, .leaks = profile.Leaks()};
    *reply = {.answer = worker::AnswerQuestion(answer, formats::HeapV2(profile)),
              .has_contents = true,
              .leaks = answer.leaks,
              .warnings = profile.warnings};
  };
  const std::optional<uid_t> user = BeginMaking(target);
  means_.dumps.Make(target, use, [this, user, reply, target, question](const absl::Status&, absl::Duration used) {
    EndMaking(target, user, used);
    Answer(target, question, std::move(*reply));
  });
}

void Requests::HandleTrigger(Target& target, heaptap_dump_kind kind) {
  // In a system-wide recording a process may cause triggers without end; one later dump covers them all.
  const base::Instant now = base::Now();
  if (accounts_.has_value() && now - target.requested->triggered < kTriggerPause) {
    target.requested.state_.postponed = kind;
    return;
  }
  if (!HasTime(target) || !IsSettled(target) || means_.dumps.IsBusy() || means_.dumps.IsMaking(target.process_id)) {
    target.requested.state_.postponed = kind;
    return;
  }
  target.requested.state_.triggered = now;
  target.requested.state_.postponed.reset();
  means_.dumps.Write(target, kind, [this, user = BeginMaking(target)](const Target& written, absl::Duration used) {
    EndMaking(written, user, used);
  });
}

bool Requests::IsSettled(const Target& target) {
  const auto is_settled = [&] {
    means_.unwinding.HandleTablesRead();
    return !means_.unwinding.IsWorthWaiting(target.process_id, base::Now()) &&
           !means_.unwinding.moved_code().IsLooking(target.pid);
  };
  // The thread of a system-wide recording has other things to do.
  return accounts_.has_value() ? is_settled()
                               : means_.errands.WaitUntil(is_settled, base::Now() + RawStacks::kPatience);
}

void Requests::NoteUser(const Target& target) {
  if (accounts_.has_value()) means_.spaces.SetUser(target.pid, AccountOf(target));
}

std::optional<uid_t> Requests::AccountOf(const Target& target) const {
  if (!accounts_.has_value()) return uid_t{0};
  if (!target.facts->owner.has_value()) return std::nullopt;
  return accounts_->ids().OwnerOf(*target.facts->owner);
}

bool Requests::HasTime(const Target& target) {
  if (!accounts_.has_value()) return true;
  const std::optional<uid_t> user = AccountOf(target);
  return accounts_->HasTime(target.facts->owner, base::Now()) && (user == base::kRoot || !making_.contains(user));
}

void Requests::Charge(const Target& target, absl::Duration used) {
  if (accounts_.has_value()) accounts_->Charge(target.facts->owner, used, base::Now());
}

void Requests::HandlePostponed() {
  const base::OneThread one_thread(thread_);
  for (const auto& [process_id, event] : std::exchange(postponed_, {})) {
    Target* target = means_.targets.Find(process_id);
    if (target == nullptr) continue;
    if (target->ending.has_value()) {
      // A request that has waited in vain is reported.
      const bool has_given_up = base::Now() - base::Instant::FromNanoseconds(event.time) > Answers::kLimit;
      if (has_given_up) Postpone(*target, event);
    } else {
      HandleDump(*target, event);
    }
  }
}

void Requests::HandleDump(Target& target, const heaptap_event& event) {
  const heaptap_dump_request asked = process::RequestOf(event);
  if (asked.kind == HEAPTAP_ASK_TABLES) {
    return means_.unwinding.HandleQuestion(target.process_id, target.pid, static_cast<uint32_t>(asked.argument));
  }
  if (asked.kind == HEAPTAP_ASK_AREA) return means_.gifts.Answer(target, asked);
  // The other collector answers, unless it has ended.
  if (target.control->is_foreign) {
    return means_.controls.Read(target,
                                [this, id = target.process_id, event](const absl::StatusOr<heaptap_control>& control) {
                                  if (Target* const now = means_.targets.Find(id); now != nullptr)
                                    HandleOfOther(*now, event, control);
                                });
  }
  if (!means_.books.processes().IsCurrent(static_cast<pid_t>(event.tgid), target.process_id)) return;  // it has ended
  // A process that asks too often waits, and costs no profile.
  const bool has_room = answers_.HasRoom(target.process_id, AccountOf(target));
  if (!has_room || !HasTime(target) || !IsSettled(target) || means_.dumps.IsBusy()) return Postpone(target, event);
  const Question question = {
      .event = event, .request = asked, .place = answers_.Take(target.process_id, AccountOf(target))};
  if (asked.kind != HEAPTAP_ASK_RECENT && asked.kind != HEAPTAP_ASK_LOG) return MakeDump(target, question);
  MakeRecords(target, question);
}

void Requests::HandleOfOther(Target& target, const heaptap_event& event,
                             const absl::StatusOr<heaptap_control>& control) {
  if (worker::MayPass(control.status())) return Postpone(target, event);
  if (!control.ok()) return;
  means_.controls.FindCollector(
      *control, [this, id = target.process_id, event](const std::shared_ptr<const OtherCollector>& other) {
        Target* const now = means_.targets.Find(id);
        if (now == nullptr || other != nullptr) return;
        means_.controls.TakeOver(*now);
        HandleDump(*now, event);
      });
}

void Requests::Postpone(const Target& target, const heaptap_event& event) {
  if (base::Now() - base::Instant::FromNanoseconds(event.time) <= Answers::kLimit) {
    postponed_[target.process_id] = event;
    return;
  }
  given_up_++;
  failed_ = true;
  base::Say(absl::StrCat("process ", target.pid, " (", target.name, ") asked for a dump, waited ",
                         absl::FormatDuration(Answers::kLimit),
                         " and got none, because heaptap was too busy; let fewer processes ask at once"));
}

void Requests::Answer(const Target& target, const Question& question, Reply reply) {
  failed_ |= !reply.has_contents;
  // If the dump fails, the process keeps no file, and the collector's last dump reports the leaks.
  std::vector<std::string> leak_report;
  if (question.request.kind == HEAPTAP_DUMP_FINAL) {
    if (Target* now = means_.targets.Find(target.process_id); now != nullptr) now->requested.state_.own_final = true;
    const bool is_said = (question.request.argument & HEAPTAP_FINAL_PRINT_LEAKS) != 0;
    if (is_said && reply.has_contents) leak_report = means_.dumps.LeakReport(target, reply.leaks, "");
  }
  // A child of vfork has its parent's books, under its own PID.
  const auto pid = static_cast<pid_t>(question.event.tgid);
  answers_.Start(
      question.place, pid, std::move(reply.answer),
      [processes = &means_.books.processes(), pid, id = target.process_id] { return processes->IsCurrent(pid, id); },
      [leak_report](bool is_ok) {
        for (const std::string& line : leak_report) {
          if (is_ok) base::SayPlain(line);
        }
      });
  means_.dumps.SayLosses(reply.warnings);
}

// Probes are attached for every process, so requests of processes that others record arrive here too.
void Requests::RefuseDump(const heaptap_event& event) {
  const auto pid = static_cast<pid_t>(event.tgid);
  if (!answers_.HasRoom(Answers::kUnrecorded, std::nullopt) || !means_.allocators.HasRoom(pid)) return;
  means_.allocators.Inspect(
      pid, [this, pid, address = event.argument,
            place = answers_.Take(Answers::kUnrecorded, std::nullopt)](const absl::StatusOr<Inspection>& inspection) {
        if (!inspection.ok() || inspection->control_addresses.empty()) return answers_.GiveBack(place);
        // A courtesy answer: its failure is not reported.
        const auto answer = [this, pid, address, place] {
          answers_.Start(
              place, pid, worker::AnswerQuestion({.address = address, .error = ESRCH}, ""), [] { return true; },
              [](bool) {});
        };
        means_.controls.Find(
            pid, inspection->control_addresses, [] { return true; },
            [this, place, answer](const absl::StatusOr<Controls::Found>& found) {
              if (!found.ok()) return answers_.GiveBack(place);
              means_.controls.FindCollector(found->control, [this, place, answer](const auto& other) {
                other == nullptr ? answer() : answers_.GiveBack(place);
              });
            });
      });
}

}  // namespace heaptap::recording
