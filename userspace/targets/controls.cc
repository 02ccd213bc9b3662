// SPDX-License-Identifier: Apache-2.0
#include "userspace/targets/controls.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/messages.h"
#include "userspace/base/require.h"
#include "userspace/process/control_block.h"
#include "userspace/process/facts.h"

namespace heaptap::recording {
namespace {

// A bound, because any process can take the name of a collector.
constexpr size_t kMaxCollectorsReported = 16;

// A bound, because any process can make its control block unusable.
constexpr size_t kMaxFailuresReported = 16;

// Whether an order may succeed when it is tried again: heaptap, or its hands, had no descriptor or no memory for a
// moment.
bool MaySucceedAgain(const absl::Status& status) {
  return !status.ok() && !absl::IsNotFound(status) && !absl::IsDeadlineExceeded(status);
}

absl::StatusOr<heaptap_control> OrderTwice(worker::Hands& hands, pid_t pid, const worker::ControlOrder& order,
                                           const std::function<bool()>& is_current) {
  absl::StatusOr<heaptap_control> control = hands.Control(pid, order, is_current);
  return MaySucceedAgain(control.status()) ? hands.Control(pid, order, is_current) : control;
}

absl::Status TooManyOrders(pid_t pid) {
  return absl::UnavailableError(
      absl::StrCat("too many orders wait for the user of process ", pid, "; trying again soon"));
}

// The other collector that the control block names; 0: none.
pid_t OtherPid(const heaptap_control& control) {
  const auto pid = static_cast<pid_t>(control.collector_pid);
  return pid > 0 && pid != getpid() ? pid : 0;
}

}  // namespace

void Controls::Note(Target& target, const heaptap_control& control, uint64_t address) {
  const process::ControlFacts facts = process::FactsOf(control);
  Image& image = target.image.state_;
  image.has_started = true;
  image.control_address = address;
  image.allocator = facts.allocator;
  image.max_frames = facts.max_frames;
  image.raw = facts.raw;
  image.prof_leak = facts.prof_leak;
  image.lg_sample = facts.lg_sample;
  NoteReading(target, &control);
}

bool Controls::NoteStarted(Target& target) { return !std::exchange(target.image.state_.has_started, true); }

void Controls::NoteReading(Target& target, const heaptap_control* control) {
  Image& image = target.image.state_;
  image.active.reset();
  if (control == nullptr) return;
  image.active = control->active != 0;
  image.allocator_name = process::AllocatorName(*control);
}

void Controls::NoteParent(Target& target, const Target& parent) {
  Image& image = target.image.state_;
  image = *parent.image;
  image.has_started = false;
  image.was_found = false;
  image.active.reset();
}

void Controls::NoteOwnRate(Target& target, uint64_t lg_sample) {
  target.image.state_.lg_sample = static_cast<uint32_t>(std::min<uint64_t>(lg_sample, HEAPTAP_MAX_LG_SAMPLE));
}

absl::Status Controls::NoteStart(Target& target, const heaptap_control& control, uint64_t address) {
  // It was looked at while it started.
  if (std::exchange(target.image.state_.was_found, false)) means_.processes.UncountBeginning(target.process_id);
  NoteStarted(target);
  absl::Status status = process::CheckControl(control, target.pid);
  if (status.ok()) {
    Note(target, control, address);
  } else if (!std::exchange(target.control.state_.is_refused, true)) {
    base::Say(absl::StrCat(status.message(), "; its stacks are shown with the allocator's frames"));
  }
  return status;
}

void Controls::Take(Target& target, const heaptap_control& control) {
  // A system-wide recording includes processes that another collector records, but leaves them under the control of
  // that collector.
  if (!options_.is_system_wide || OtherPid(control) == 0) return TakeUnless(nullptr, target, control);
  target.control.state_.is_foreign = true;
  FindCollector(control, [this, id = target.process_id, control](std::shared_ptr<const OtherCollector> other) {
    Target* const now = means_.targets.Find(id);
    if (now != nullptr && !now->ending.has_value()) TakeUnless(std::move(other), *now, control);
  });
}

void Controls::TakeUnless(std::shared_ptr<const OtherCollector> other, Target& target, const heaptap_control& control) {
  Control& state = target.control.state_;
  state.other = std::move(other);
  state.is_foreign = state.other != nullptr;
  if (state.is_foreign) {
    const bool is_new =
        collectors_reported_.size() < kMaxCollectorsReported && collectors_reported_.insert(state.other->pid).second;
    if (!is_new) return;
    return base::Say(absl::StrCat("process ", target.pid, " (", target.name, ") is also recorded by heaptap process ",
                                  state.other->pid,
                                  ", which sets its rate, answers its requests and writes its last dump"));
  }
  const bool is_up_to_date = control.collector_pid == static_cast<uint32_t>(getpid()) &&
                             control.collector_lg_sample == target.CollectorRate() && control.collector_follows != 0;
  if (is_up_to_date) {
    state.written_rate = target.WantedRate();
  } else if (target.policy->record) {
    Write(target);
  }
}

void Controls::TakeFound(Target& target, const heaptap_control& control, uint64_t address) {
  const absl::Status counted =
      means_.processes.CountUnseenBeginning(target.pid, target.process_id, control.statistics.active);
  if (!counted.ok()) Report(counted.message());
  target.image.state_.was_found = true;
  Note(target, control, address);
  Take(target, control);
}

void Controls::Find(pid_t pid, const std::vector<uint64_t>& addresses, std::function<bool()> is_current,
                    FoundDone done) {
  const base::OneThread one_thread(thread_);
  HEAPTAP_REQUIRE(!addresses.empty());
  if (!means_.orders.HasRoom(pid)) return done(TooManyOrders(pid));
  const auto found = std::make_shared<absl::StatusOr<Found>>(Found());
  means_.orders.Start(
      pid,
      [pid, addresses, is_current = std::move(is_current), found](worker::Hands& hands, int) {
        for (const uint64_t address : addresses) {
          const absl::StatusOr<heaptap_control> control = OrderTwice(hands, pid, {.address = address}, is_current);
          if (!control.ok()) {
            *found = control.status();
            continue;
          }
          *found = Found{.address = address, .control = *control};
          return;
        }
      },
      [found, done = std::move(done)] { done(*found); });
}

void Controls::FindAndTake(const Target& target, const std::vector<uint64_t>& addresses,
                           std::function<void(const absl::Status&)> done) {
  Find(target.pid, addresses, IsCurrent(target),
       [this, id = target.process_id, done = std::move(done)](const absl::StatusOr<Found>& found) {
         NoteLate(id, found.status());
         Target* const now = means_.targets.Find(id);
         if (found.ok() && now != nullptr && !now->ending.has_value()) {
           TakeFound(*now, found->control, found->address);
         }
         done(found.status());
       });
}

std::function<bool()> Controls::IsCurrent(const Target& target) const {
  return [processes = &means_.processes, pid = target.pid, id = target.process_id] {
    return processes->IsCurrent(pid, id);
  };
}

void Controls::Order(const Target& target, worker::ControlVerb verb, uint32_t argument, OrderDone done) {
  const base::OneThread one_thread(thread_);
  HEAPTAP_REQUIRE(target.image->control_address != 0);
  if (!means_.orders.HasRoom(target.pid)) return done(TooManyOrders(target.pid));
  const worker::ControlOrder order = {.verb = verb,
                                      .argument = argument,
                                      .follows = options_.follow,
                                      .collector = static_cast<uint32_t>(getpid()),
                                      .address = target.image->control_address};
  const auto control = std::make_shared<absl::StatusOr<heaptap_control>>(heaptap_control{});
  means_.orders.Start(
      target.pid,
      [pid = target.pid, order, is_current = IsCurrent(target), control](worker::Hands& hands, int) {
        *control = OrderTwice(hands, pid, order, is_current);
      },
      [this, id = target.process_id, control, done = std::move(done)] {
        NoteLate(id, control->status());
        done(*control);
      });
}

void Controls::NoteLate(uint64_t process_id, const absl::Status& status) {
  Target* const target = means_.targets.Find(process_id);
  if (target == nullptr || !absl::IsDeadlineExceeded(status) || std::exchange(target->control.state_.was_late, true))
    return;
  Report(absl::StrCat(status.message(),
                      ": its rate and its prof.active cannot be set until it does; heaptap tries again"));
}

void Controls::Write(Target& target, WriteDone done) {
  const base::OneThread one_thread(thread_);
  if (target.image->control_address == 0) return done(absl::OkStatus());
  // The rate that is wanted when the current writing has ended is written then.
  if (std::exchange(target.control.state_.is_writing, true)) {
    return done(absl::UnavailableError(absl::StrCat("process ", target.pid, " is being told its rate")));
  }
  Order(target, worker::ControlVerb::kTake, target.CollectorRate(),
        [this, id = target.process_id, rate = target.WantedRate(), collector_rate = target.CollectorRate(),
         done = std::move(done)](const absl::StatusOr<heaptap_control>& control) {
          if (Target* const now = means_.targets.Find(id); now != nullptr && !now->ending.has_value()) {
            now->control.state_.is_writing = false;
            HandleWritten(*now, control.status(), rate);
            const bool is_current = now->CollectorRate() == collector_rate;
            if (std::exchange(now->control.state_.shall_release, false)) {
              Release(*now);
            } else if (control.ok() && !is_current) {
              Write(*now);
            }
          }
          done(control.status());
        });
}

void Controls::Raise(Target& target, uint32_t steps, base::Instant now) {
  Control& state = target.control.state_;
  if (steps > state.raised) state.raised_at = now;
  state.raised = steps;
  Write(target);
}

void Controls::AskRate(Target& target, std::optional<uint32_t> lg_sample, WriteDone done) {
  HEAPTAP_REQUIRE(!target.control->is_writing);
  Control& state = target.control.state_;
  const std::optional<uint32_t> before = std::exchange(state.asked_lg_sample, lg_sample);
  // Exactly this rate holds for now; the budget may raise it again later.
  const uint32_t raised_before = std::exchange(state.raised, 0);
  Write(target, [this, id = target.process_id, before, raised_before,
                 done = std::move(done)](const absl::Status& written) {
    // With a rate that the process does not have, the errors of its figures would be wrong. A process that has ended
    // needs no rate.
    if (Target* const now = means_.targets.Find(id); now != nullptr && !written.ok() && !absl::IsNotFound(written)) {
      now->control.state_.asked_lg_sample = before;
      now->control.state_.raised = raised_before;
    } else if (now != nullptr) {
      now->is_saved = false;
    }
    done(written);
  });
}

void Controls::SetActive(const Target& target, bool active, WriteDone done) {
  Order(target, worker::ControlVerb::kActive, active ? 1 : 0,
        [this, id = target.process_id, active, done = std::move(done)](const absl::StatusOr<heaptap_control>& control) {
          Target* const now = means_.targets.Find(id);
          if (control.ok() && now != nullptr) now->image.state_.active = active;
          done(control.status());
        });
}

void Controls::TakeOver(Target& target) {
  target.control.state_.is_foreign = false;
  target.control.state_.other = nullptr;
  Write(target);
}

void Controls::HandleWritten(Target& target, const absl::Status& status, uint32_t rate) {
  // A process that has ended needs no rate.
  const bool is_refused = !status.ok() && !absl::IsNotFound(status);
  // The next try may succeed.
  if (is_refused && !worker::MayPass(status) && !target.control->is_unwritten) {
    Report(absl::StrCat("process ", target.pid, " (", target.name, ") cannot be told its rate and its collector: ",
                        status.message(), "; it keeps its own rate, and its own dumps may fail"));
  }
  target.control.state_.is_unwritten = is_refused;
  if (status.ok()) target.control.state_.written_rate = rate;
}

void Controls::Release(Target& target) {
  if (target.image->control_address == 0) return;
  Control& state = target.control.state_;
  state.is_unwritten = false;
  state.shall_release = state.is_writing;
  if (state.is_writing) return;
  Order(target, worker::ControlVerb::kRelease, 0,
        [this, pid = target.pid, name = target.name,
         foreign = state.is_foreign](const absl::StatusOr<heaptap_control>& control) {
          // A process that has ended has nothing to restore.
          if (control.ok() || absl::IsNotFound(control.status()) || foreign) return;
          Report(absl::StrCat("process ", pid, " (", name, ") still names this collector: ", control.status().message(),
                              "; the next one takes it over"));
        });
}

void Controls::AnswerTables(const Target& target, uint32_t asked) {
  if (target.image->control_address == 0 || target.control->is_foreign) return;
  // Fails if the process has ended; then it no longer waits.
  Order(target, worker::ControlVerb::kTablesReady, asked, [](const absl::StatusOr<heaptap_control>&) {});
}

void Controls::FindCollector(const heaptap_control& control, CollectorDone done) {
  const pid_t pid = OtherPid(control);
  // A killed collector leaves its PID in the control block. Another program may have this PID by now.
  absl::StatusOr<base::FileDescriptor> pidfd =
      pid == 0 ? absl::NotFoundError("no other collector") : process::OpenPidfd(pid);
  if (!pidfd.ok() || !means_.orders.HasRoom(pid)) return done(nullptr);
  const auto collector = std::make_shared<const OtherCollector>(OtherCollector{pid, *std::move(pidfd)});
  const auto facts = std::make_shared<absl::StatusOr<process::Facts>>(process::Facts());
  means_.orders.Start(
      pid, [pid, facts](worker::Hands& hands, int) { *facts = hands.Facts(pid); },
      [collector, facts, done = std::move(done)] {
        const bool is_collector = facts->ok() && (*facts)->command == process::kCollectorName;
        done(is_collector && !collector->HasEnded() ? collector : nullptr);
      });
}

void Controls::Report(absl::string_view line) {
  if (failures_reported_ == kMaxFailuresReported) return;
  failures_reported_++;
  base::Say(line);
}

}  // namespace heaptap::recording
