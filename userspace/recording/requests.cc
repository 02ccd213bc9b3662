// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/requests.h"

#include <errno.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/user_ids.h"
#include "userspace/export/heap_v2.h"
#include "userspace/export/log_json.h"
#include "userspace/export/recent_json.h"
#include "userspace/process/dump_request.h"
#include "userspace/recording/raw_stacks.h"
#include "userspace/worker/answer_job.h"

namespace heaptap::recording {
namespace {

// Each user's account of the recording's thread: for profiles that the user's processes or clients ask for. The profile
// of a large program takes a tenth of a second, so a user can have one a second; of small ones, several at once.
constexpr double kProfileShare = 0.1;
constexpr absl::Duration kProfileBurst = absl::Milliseconds(100);

// Between two triggered dumps of one process in a system-wide recording.
constexpr absl::Duration kTriggerPause = absl::Seconds(1);

}  // namespace

Requests::Requests(const Means& means, bool is_system_wide)
    : books_(means.books),
      errands_(means.errands),
      targets_(means.targets),
      spaces_(means.spaces),
      controls_(means.controls),
      allocators_(means.allocators),
      unwinding_(means.unwinding),
      dumps_(means.dumps),
      answers_(means.errands) {
  if (is_system_wide) accounts_.emplace(base::SubordinateIds::OfSystem(), kProfileShare, kProfileBurst);
}

void Requests::HandleDueTrigger(Target& target, base::Instant now) {
  if (target.postponed.has_value() && now - target.triggered >= kTriggerPause) HandleTrigger(target, *target.postponed);
}

Requests::Reply Requests::Refusal(const Question& question, int error) {
  const worker::DumpAnswer answer = {
      .address = question.event.argument, .sequence = question.request.sequence, .error = error};
  return {.answer = worker::AnswerQuestion(answer, "")};
}

void Requests::MakeRecords(const Target& target, const Question& question) {
  const auto reply = std::make_shared<Reply>(Refusal(question, EIO));
  const auto use = [reply, question](const profile::SampleRecords& records) {
    const auto write = question.request.kind == HEAPTAP_ASK_LOG ? exporter::LogJson : exporter::RecentJson;
    const worker::DumpAnswer answer = {.address = question.event.argument, .sequence = question.request.sequence};
    *reply = {.answer = worker::AnswerQuestion(answer, write(records)), .has_contents = true};
  };
  const std::optional<uid_t> user = BeginMaking(target);
  dumps_.orders().MakeRecords(dumps_.Plan(target), question.request.argument, use,
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
  const auto use = [reply, question, raw = target.raw](profile::Profile& profile) {
    profile.raw = raw;
    const worker::DumpAnswer answer = {
        .address = question.event.argument, .sequence = question.request.sequence, .leaks = profile.Leaks()};
    *reply = {.answer = worker::AnswerQuestion(answer, exporter::HeapV2(profile)),
              .has_contents = true,
              .leaks = answer.leaks,
              .warnings = profile.warnings};
  };
  const std::optional<uid_t> user = BeginMaking(target);
  dumps_.Make(target, use, [this, user, reply, target, question](const absl::Status&, absl::Duration used) {
    EndMaking(target, user, used);
    Answer(target, question, std::move(*reply));
  });
}

void Requests::HandleTrigger(Target& target, heaptap_dump_kind kind) {
  // In a system-wide recording a process may cause triggers without end; one later dump covers them all.
  const base::Instant now = base::Now();
  if (accounts_.has_value() && now - target.triggered < kTriggerPause) {
    target.postponed = kind;
    return;
  }
  if (!HasTime(target) || !IsSettled(target) || dumps_.IsBusy() || dumps_.IsMaking(target.process_id)) {
    target.postponed = kind;
    return;
  }
  target.triggered = now;
  target.postponed.reset();
  dumps_.Write(target, kind, [this, user = BeginMaking(target)](const Target& written, absl::Duration used) {
    EndMaking(written, user, used);
  });
}

bool Requests::IsSettled(const Target& target) {
  const auto is_settled = [&] {
    unwinding_.HandleTablesRead();
    return !unwinding_.IsWorthWaiting(target.process_id, base::Now()) && !unwinding_.moved_code().IsLooking(target.pid);
  };
  // The thread of a system-wide recording has other things to do.
  return accounts_.has_value() ? is_settled() : errands_.WaitUntil(is_settled, base::Now() + RawStacks::kPatience);
}

void Requests::NoteUser(const Target& target) {
  if (accounts_.has_value()) spaces_.SetUser(target.pid, AccountOf(target));
}

std::optional<uid_t> Requests::AccountOf(const Target& target) const {
  if (!accounts_.has_value()) return uid_t{0};
  if (!target.facts.owner.has_value()) return std::nullopt;
  return accounts_->ids().OwnerOf(*target.facts.owner);
}

bool Requests::HasTime(const Target& target) {
  if (!accounts_.has_value()) return true;
  const std::optional<uid_t> user = AccountOf(target);
  return accounts_->HasTime(target.facts.owner, base::Now()) && (user == base::kRoot || !making_.contains(user));
}

void Requests::Charge(const Target& target, absl::Duration used) {
  if (accounts_.has_value()) accounts_->Charge(target.facts.owner, used, base::Now());
}

void Requests::HandlePostponed() {
  for (const auto& [process_id, event] : std::exchange(postponed_, {})) {
    Target* target = targets_.Find(process_id);
    if (target == nullptr) continue;
    if (target->ending.has_value()) {
      // If it has waited in vain, that is said.
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
    return unwinding_.HandleQuestion(target.process_id, target.pid, static_cast<uint32_t>(asked.argument));
  }
  // The other collector answers, unless it has ended.
  if (target.foreign) {
    return controls_.Read(target,
                          [this, id = target.process_id, event](const absl::StatusOr<heaptap_control>& control) {
                            if (Target* const now = targets_.Find(id); now != nullptr)
                              HandleOfOther(*now, event, control);
                          });
  }
  if (!books_.processes().IsCurrent(static_cast<pid_t>(event.tgid), target.process_id)) return;  // it has ended
  // A process that asks too often waits, and costs no profile.
  const bool has_room = answers_.HasRoom(target.process_id, AccountOf(target));
  if (!has_room || !HasTime(target) || !IsSettled(target) || dumps_.IsBusy()) return Postpone(target, event);
  const Question question = {
      .event = event, .request = asked, .place = answers_.Take(target.process_id, AccountOf(target))};
  if (asked.kind != HEAPTAP_ASK_RECENT && asked.kind != HEAPTAP_ASK_LOG) return MakeDump(target, question);
  MakeRecords(target, question);
}

void Requests::HandleOfOther(Target& target, const heaptap_event& event,
                             const absl::StatusOr<heaptap_control>& control) {
  if (worker::MayPass(control.status())) return Postpone(target, event);
  if (!control.ok()) return;
  controls_.FindCollector(*control,
                          [this, id = target.process_id, event](const std::shared_ptr<const OtherCollector>& other) {
                            Target* const now = targets_.Find(id);
                            if (now == nullptr || other != nullptr) return;
                            now->foreign = false;
                            now->other = nullptr;
                            controls_.Write(*now);
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
  base::Say(absl::StrCat("process ", target.pid, " (", target.name, ") waited ", absl::FormatDuration(Answers::kLimit),
                         " for a dump that it had asked for, and got none: heaptap had no time for it; let fewer "
                         "processes ask at once"));
}

void Requests::Answer(const Target& target, const Question& question, Reply reply) {
  failed_ |= !reply.has_contents;
  // If the dump fails, the process keeps no file, and the collector's last dump reports the leaks.
  std::vector<std::string> leak_report;
  if (question.request.kind == HEAPTAP_DUMP_FINAL) {
    if (Target* now = targets_.Find(target.process_id); now != nullptr) now->own_final = true;
    const bool is_said = (question.request.argument & HEAPTAP_FINAL_PRINT_LEAKS) != 0;
    if (is_said && reply.has_contents) leak_report = dumps_.LeakReport(target, reply.leaks, "");
  }
  // A child of vfork has its parent's books, under its own PID.
  const auto pid = static_cast<pid_t>(question.event.tgid);
  answers_.Start(
      question.place, pid, std::move(reply.answer),
      [processes = &books_.processes(), pid, id = target.process_id] { return processes->IsCurrent(pid, id); },
      [leak_report](bool is_ok) {
        for (const std::string& line : leak_report) {
          if (is_ok) base::SayPlain(line);
        }
      });
  dumps_.SayLosses(reply.warnings);
}

// Probes are attached for every process, so requests of processes that others record arrive here too.
void Requests::RefuseDump(const heaptap_event& event) {
  const auto pid = static_cast<pid_t>(event.tgid);
  if (!answers_.HasRoom(Answers::kUnrecorded, std::nullopt) || !allocators_.HasRoom(pid)) return;
  allocators_.Inspect(
      pid, [this, pid, address = event.argument,
            place = answers_.Take(Answers::kUnrecorded, std::nullopt)](const absl::StatusOr<Inspection>& inspection) {
        if (!inspection.ok() || inspection->control_addresses.empty()) return answers_.GiveBack(place);
        // A courtesy answer: its failure is not reported.
        const auto answer = [this, pid, address, place] {
          answers_.Start(
              place, pid, worker::AnswerQuestion({.address = address, .error = ESRCH}, ""), [] { return true; },
              [](bool) {});
        };
        controls_.Find(
            pid, inspection->control_addresses, [] { return true; },
            [this, place, answer](const absl::StatusOr<Controls::Found>& found) {
              if (!found.ok()) return answers_.GiveBack(place);
              controls_.FindCollector(found->control, [this, place, answer](const auto& other) {
                other == nullptr ? answer() : answers_.GiveBack(place);
              });
            });
      });
}

}  // namespace heaptap::recording
