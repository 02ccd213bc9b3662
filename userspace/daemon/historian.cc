// SPDX-License-Identifier: Apache-2.0
#include "userspace/daemon/historian.h"

#include <sys/types.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/mutex.h"
#include "userspace/base/printable_text.h"
#include "userspace/base/threads.h"
#include "userspace/base/user_ids.h"
#include "userspace/history/retention.h"
#include "userspace/process/service_name.h"
#include "userspace/profile/estimate.h"
#include "userspace/recording/surveys.h"
#include "userspace/report/human.h"

namespace heaptap::daemon {
namespace {

// How a process ended is known when its books are closed, which may be some rounds after its last one. For a process
// that goes on unrecorded, it is never known.
constexpr absl::Duration kEndPatience = absl::Seconds(10);

// The pause between two questions to the recording's thread, which has other things to do.
constexpr absl::Duration kBreath = absl::Milliseconds(5);

// Counts the stacks that have a row of their own. The largest come first.
size_t CountChosen(const std::vector<profile::StackShare>& stacks) {
  double all = 0;
  for (const profile::StackShare& stack : stacks) all += stack.live_bytes;
  size_t count = 0;
  for (double held = 0; count < stacks.size() && count < Historian::kMaxPaths && held < Historian::kShare * all;) {
    held += stacks[count++].live_bytes;
  }
  return count;
}

}  // namespace

Historian::Historian(api::Collector& collector, worker::Crews& crews, HistoryOptions options)
    : collector_(collector),
      options_(std::move(options)),
      place_(options_.path),
      names_(collector, crews, options_.path),
      pruner_(options_.most_bytes),
      writing_({.name = "history",
                .failure = absl::StrCat("cannot write the history in ", base::Printable(options_.path)),
                .success = "the history is written",
                .advice = "the recording goes on"}) {
  absl::StatusOr<std::thread> thread = base::StartThread([this] { Work(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    writing_.Note(thread.status());
  }
}

Historian::~Historian() {
  {
    base::MutexLock lock(&mutex_);
    shall_stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

bool Historian::WriteNow(base::Instant deadline) {
  if (!thread_.joinable()) return false;
  base::MutexLock lock(&mutex_);
  const uint64_t number = ++asked_;
  const auto is_over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return shall_stop_ || tried_ >= number; };
  return base::AwaitUntil(mutex_, absl::Condition(&is_over), deadline) && written_ >= number;
}

uint64_t Historian::BeginRound() {
  base::MutexLock lock(&mutex_);
  if (asked_ != tried_) paths_at_ = base::Instant::InfinitePast();
  return asked_;
}

void Historian::EndRound(uint64_t asked, bool is_ok) {
  base::MutexLock lock(&mutex_);
  // The next round, which follows at once, writes the rest.
  if (is_ok && has_left_paths_) return;
  tried_ = asked;
  if (is_ok) written_ = asked;
}

bool Historian::SleepUntil(base::Instant end) {
  base::MutexLock lock(&mutex_);
  const auto is_over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return shall_stop_ || asked_ != tried_; };
  base::AwaitUntil(mutex_, absl::Condition(&is_over), end);
  return !shall_stop_;
}

void Historian::Work() {
  for (base::Instant next = base::Now();;) {
    const uint64_t asked = BeginRound();
    const absl::Status status = RoundWithRoom();
    EndRound(asked, status.ok());
    if (!absl::IsCancelled(status)) writing_.Note(status);
    if (base::Now() >= next) next = std::max(next + options_.interval, base::Now());
    if (!SleepUntil(next)) return;
  }
}

absl::Status Historian::RoundWithRoom() {
  absl::Status status = TryRound();
  // If the disk is full because of others, pruning the history does not help.
  if (!absl::IsResourceExhausted(status) || writer_ == nullptr || history::IsDiskFull(options_.path)) return status;
  if (pruner_.MakeRoom(writer_->database(), base::WallNow())) status = TryRound();
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::ResourceExhaustedError(
      absl::StrCat(status.message(), " (--history-bytes is too small for what runs at present)"));
}

absl::Status Historian::TryRound() {
  absl::Status status = Round();
  if (status.ok() || absl::IsCancelled(status)) return status;
  if (writer_ != nullptr) writer_->Rollback();
  ForgetProcesses();
  if (absl::IsDataLoss(status)) Close();
  return status;
}

// The next round finds again what the database has of these processes.
void Historian::ForgetProcesses() {
  known_.clear();
  activities_.clear();
  has_ended_others_ = false;
}

void Historian::Close() {
  ForgetProcesses();
  writer_ = nullptr;
  names_.Clear();
}

absl::Status Historian::Round() {
  // Somebody has moved or removed the file or its folder.
  if (writer_ != nullptr && writer_->database().HasMoved()) Close();
  if (place_.TakeSuspicion() && writer_ != nullptr) {
    if (absl::Status status = history::Check(options_.path); !status.ok()) return status;
  }
  if (writer_ == nullptr) {
    absl::StatusOr<std::unique_ptr<history::Writer>> writer = history::Writer::Open(options_.path, options_.most_bytes);
    if (!writer.ok()) return writer.status();
    writer_ = *std::move(writer);
  }
  const absl::Duration begin = base::ThreadProcessorTime();
  const bool with_paths = base::Now() >= paths_at_;
  const absl::Cleanup pause = [&] {
    if (with_paths && !has_left_paths_) Pause(base::ThreadProcessorTime() - begin - new_paths_cost_);
  };
  new_paths_cost_ = {};
  has_left_paths_ = false;
  const absl::StatusOr<profile::Survey> survey = collector_.Survey(activities_, options_.interval, with_paths);
  // The daemon ends, or has no time now.
  if (!survey.ok()) return absl::CancelledError(survey.status().message());
  const base::Instant now = base::Now();
  const absl::Time wall_now = base::WallNow();
  std::vector<Turn> turns = MakeTurns(*survey);
  // All questions to the collector come before the transaction, during which nobody else can write.
  FindNewPaths(now, turns);
  const std::vector<Gone> gone = FindGone(wall_now, *survey);
  if (absl::Status status = Write(wall_now, *survey, gone, turns); !status.ok()) return status;
  return pruner_.PruneIfDue(writer_->database(), wall_now);
}

void Historian::Pause(absl::Duration cost) {
  const double haste = std::min(1.0, absl::FDivDuration(options_.interval, kUsualInterval));
  paths_at_ = base::Now() + haste / kShareOfCore * cost;
}

std::vector<Historian::Turn> Historian::MakeTurns(const profile::Survey& survey) {
  std::vector<const profile::SurveyedProcess*> order;
  order.reserve(survey.processes.size());
  for (const profile::SurveyedProcess& process : survey.processes) order.push_back(&process);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->since < b->since; });
  std::map<std::optional<uid_t>, size_t> of_user;
  std::vector<Turn> turns;
  turns.reserve(order.size());
  for (const profile::SurveyedProcess* process : order) {
    const bool is_new = !known_.contains(process->ref.process_id);
    // The service of the process, or what the process holds, is not known yet.
    if (is_new && (!process->control_groups.has_value() || !process->is_changed)) continue;
    if (process->owner != base::kRoot && ++of_user[process->owner] > kMaxProcessesOfUser) continue;
    Turn turn = {.process = process, .stacks = process->stacks};
    SortStacks(is_new ? nullptr : &known_[process->ref.process_id], turn.stacks);
    turn.chosen = CountChosen(turn.stacks);
    turns.push_back(std::move(turn));
  }
  return turns;
}

void Historian::SortStacks(const Known* known, std::vector<profile::StackShare>& stacks) {
  const auto weight = [&](const profile::StackShare& stack) {
    if (known == nullptr) return stack.live_bytes;
    const auto number = known->numbers.find(stack.stack_id);
    const bool had_row = number != known->numbers.end() && known->last.rows.contains(number->second);
    return had_row ? kLoyalty * stack.live_bytes : stack.live_bytes;
  };
  std::vector<std::pair<double, size_t>> order;
  order.reserve(stacks.size());
  for (size_t i = 0; i < stacks.size(); i++) order.emplace_back(-weight(stacks[i]), i);
  // The order of the other stacks does not matter.
  const size_t count = std::min(kMaxPaths, order.size());
  std::partial_sort(order.begin(), order.begin() + count, order.end());
  std::vector<profile::StackShare> sorted;
  sorted.reserve(stacks.size());
  for (const auto& [negative_weight, i] : order) sorted.push_back(stacks[i]);
  stacks = std::move(sorted);
}

void Historian::FindNewPaths(base::Instant now, std::vector<Turn>& turns) {
  const absl::Cleanup count = [this, begin = base::ThreadProcessorTime()] {
    new_paths_cost_ += base::ThreadProcessorTime() - begin;
  };
  size_t all = 0;
  for (Turn& turn : turns) {
    Known& known = known_[turn.process->ref.process_id];
    if (known.new_paths_at == base::Instant()) known.new_paths_at = now;
    const double days = absl::FDivDuration(now - known.new_paths_at, absl::Hours(24));
    known.new_paths = std::clamp(known.new_paths + days * kMaxNewPaths, 0.0, kMaxNewPaths);
    known.new_paths_at = now;
    for (size_t i = 0; i < turn.chosen; i++) {
      const uint64_t stack = turn.stacks[i].stack_id;
      if (known.numbers.contains(stack)) continue;
      if (known.new_paths < 1) break;
      if (all == kMaxNewPathsOfAll) {
        has_left_paths_ = true;
        turn.is_complete = false;
        break;
      }
      known.new_paths--;
      all++;
      turn.asked.push_back(stack);
    }
    std::vector<uint64_t> answered;
    for (size_t begin = 0; begin < turn.asked.size(); begin += recording::Surveys::kMaxStacks) {
      const size_t end = std::min(begin + recording::Surveys::kMaxStacks, turn.asked.size());
      const std::vector<uint64_t> piece(turn.asked.begin() + begin, turn.asked.begin() + end);
      absl::StatusOr<profile::SurveyedStacks> found = collector_.Stacks(turn.process->ref, piece);
      // The process has ended in the meantime.
      if (!found.ok()) break;
      const size_t files = turn.found.files.size();
      for (auto& stack : found->stacks) {
        for (auto& frame : stack.frames) {
          if (frame.file != profile::SurveyedStacks::kNoFile) frame.file += files;
        }
        turn.found.stacks.push_back(std::move(stack));
      }
      std::move(found->files.begin(), found->files.end(), std::back_inserter(turn.found.files));
      answered.insert(answered.end(), piece.begin(), piece.end());
      if (!SleepUntil(base::Now() + kBreath)) break;
    }
    turn.is_complete &= answered.size() == turn.asked.size();
    turn.asked = std::move(answered);
  }
}

absl::Status Historian::Write(absl::Time now, const profile::Survey& survey, const std::vector<Gone>& gone,
                              std::vector<Turn>& turns) {
  if (absl::Status status = writer_->Begin(); !status.ok()) return status;
  std::vector<HistoryNames::Task> tasks;
  for (Turn& turn : turns) {
    if (absl::Status status = WriteOne(now, turn, tasks); !status.ok()) return status;
  }
  if (absl::Status status = EndProcesses(now, survey, gone); !status.ok()) return status;
  for (const profile::Survey::Dump& dump : survey.dumps) {
    const auto known = known_.find(dump.process.process_id);
    if (known == known_.end()) continue;
    absl::Status status = writer_->AddMark(dump.time, known->second.id, "dump", base::Printable(dump.path));
    // If a process has very many dumps, further ones have no marks.
    if (!status.ok() && !absl::IsFailedPrecondition(status)) return status;
  }
  if (absl::Status status = writer_->Commit(); !status.ok()) return status;
  for (const Turn& turn : turns) {
    const uint64_t process_id = turn.process->ref.process_id;
    // The paths of the process were not read: ask again.
    if (!turn.process->is_changed) continue;
    if (turn.is_complete) {
      activities_[process_id] = turn.process->activity;
    } else {
      activities_.erase(process_id);
    }
  }
  names_.Add(std::move(tasks));
  return absl::OkStatus();
}

absl::Status Historian::WriteOne(absl::Time now, Turn& turn, std::vector<HistoryNames::Task>& tasks) {
  const profile::SurveyedProcess& process = *turn.process;
  Known& known = known_[process.ref.process_id];
  if (known.id == 0) {
    const std::vector<std::string> groups = process.control_groups.value_or(std::vector<std::string>());
    const absl::StatusOr<int64_t> id =
        writer_->AddProcess({.service = base::Printable(process::ServiceName(groups, process.script, process.command)),
                             .command = base::Printable(process.command),
                             .pid = process.ref.pid,
                             .process_id = process.ref.process_id,
                             .owner = process.owner,
                             .started = process.since});
    if (!id.ok()) return id.status();
    known.id = *id;
  }
  if (absl::Status status = AddPaths(turn, known, tasks); !status.ok()) return status;
  history::Point& point = known.last;
  point.rss_bytes = process.resident_bytes;
  point.limit_bytes = process.limit_bytes;
  point.lg_sample = process.lg_sample;
  point.lost = process.lost;
  if (process.is_changed) {
    point.allocated_bytes = profile::ToWhole(process.allocated_bytes);
    // The estimates are rounded once for each row, because there may be as many unfinished stacks as samples.
    std::map<uint64_t, profile::StackShare> rows;
    double bytes = 0;
    double objects = 0;
    for (size_t i = 0; i < turn.stacks.size(); i++) {
      const profile::StackShare& stack = turn.stacks[i];
      const auto number = known.numbers.find(stack.stack_id);
      const bool has_row = i < turn.chosen && number != known.numbers.end();
      // Stacks that differ only inside the allocator have the same path.
      profile::StackShare& row = rows[has_row ? number->second : 0];
      row.live_bytes += stack.live_bytes;
      row.live_objects += stack.live_objects;
      row.samples += stack.samples;
      row.live_variance += stack.live_variance;
      // Paths enter and leave the row of all other paths, so two points of that row say nothing about its samples.
      if (has_row) row.allocated_samples += stack.allocated_samples;
      bytes += stack.live_bytes;
      objects += stack.live_objects;
    }
    point.rows.clear();
    for (const auto& [number, row] : rows) {
      history::Held& held = point.rows[number];
      held = {.live_bytes = profile::ToWhole(row.live_bytes),
              .live_objects = profile::ToWhole(row.live_objects),
              .samples = row.samples,
              .allocated_samples = row.allocated_samples};
      const double deviation = std::sqrt(row.live_variance);
      const uint64_t equal = history::DeviationOfEqualSamples(held);
      held.deviation =
          profile::MayStandFor(static_cast<double>(equal), deviation) ? equal : profile::ToWhole(deviation);
    }
    point.live_bytes = profile::ToWhole(bytes);
    point.live_objects = profile::ToWhole(objects);
  }
  return writer_->AddPoint(known.id, now, point);
}

absl::Status Historian::AddPaths(Turn& turn, Known& known, std::vector<HistoryNames::Task>& tasks) {
  if (turn.found.stacks.empty()) return absl::OkStatus();
  const absl::Cleanup count = [this, begin = base::ThreadProcessorTime()] {
    new_paths_cost_ += base::ThreadProcessorTime() - begin;
  };
  std::vector<int64_t> files;
  files.reserve(turn.found.files.size());
  for (const profile::StackFile& file : turn.found.files) {
    const absl::StatusOr<int64_t> id =
        writer_->AddFile({.path = base::Printable(file.mapping.path), .version = file.version});
    if (!id.ok()) return id.status();
    files.push_back(*id);
  }
  std::vector<history::Writer::NewFrame> new_frames;
  for (size_t i = 0; i < turn.found.stacks.size(); i++) {
    const profile::SurveyedStacks::Stack& stack = turn.found.stacks[i];
    if (!stack.is_finished) {
      const base::Instant since = known.waits.try_emplace(turn.asked[i], known.new_paths_at).first->second;
      if (known.new_paths_at - since < options_.patience) {
        turn.is_complete = false;
        known.new_paths++;
        continue;
      }
    }
    known.waits.erase(turn.asked[i]);
    std::vector<history::FileOffset> places;
    places.reserve(stack.frames.size());
    for (const profile::SurveyedStacks::Frame& frame : stack.frames) {
      const bool has_file = frame.file != profile::SurveyedStacks::kNoFile;
      places.push_back({.file = has_file ? files[frame.file] : 0, .offset = frame.offset});
    }
    const absl::StatusOr<uint64_t> number = writer_->AddPath(known.id, places, new_frames);
    if (!number.ok()) return number.status();
    known.numbers[turn.asked[i]] = *number;
  }
  std::map<int64_t, HistoryNames::Task> by_file;
  for (const history::Writer::NewFrame& frame : new_frames) {
    const auto [task, is_new] = by_file.try_emplace(frame.place.file);
    if (is_new) {
      const size_t index = std::find(files.begin(), files.end(), frame.place.file) - files.begin();
      task->second = {.process = turn.process->ref,
                      .owner = turn.process->owner,
                      .mapping = turn.found.files[index].mapping,
                      .file = frame.place.file};
    }
    task->second.frames.push_back(frame);
  }
  for (auto& [file, task] : by_file) tasks.push_back(std::move(task));
  return absl::OkStatus();
}

std::vector<Historian::Gone> Historian::FindGone(absl::Time now, const profile::Survey& survey) {
  std::set<uint64_t> running;
  for (const profile::SurveyedProcess& process : survey.processes) running.insert(process.ref.process_id);
  std::vector<uint64_t> missing;
  for (const auto& [process_id, known] : known_) {
    if (!running.contains(process_id)) missing.push_back(process_id);
  }
  std::vector<Gone> gone;
  if (missing.empty()) return gone;
  const auto ended = collector_.Ended().value_or(std::vector<profile::EndedProcess>());
  for (const uint64_t process_id : missing) {
    const auto found = std::find_if(ended.begin(), ended.end(), [&](const profile::EndedProcess& process) {
      return process.summary.process_id == process_id;
    });
    if (found != ended.end()) {
      gone.push_back({.process_id = process_id, .ended = found->ended, .how = report::HowItEnded(*found)});
      continue;
    }
    std::optional<Known::Missing>& since = known_[process_id].missing;
    if (!since.has_value()) since = {.time = now, .at = base::Now()};
    if (base::Now() - since->at >= kEndPatience) gone.push_back({.process_id = process_id, .ended = since->time});
  }
  return gone;
}

absl::Status Historian::EndProcesses(absl::Time now, const profile::Survey& survey, const std::vector<Gone>& gone) {
  for (const Gone& one : gone) {
    absl::Status status = writer_->EndProcess(known_[one.process_id].id, one.ended, one.how);
    if (!status.ok()) return status;
    known_.erase(one.process_id);
    activities_.erase(one.process_id);
  }
  const bool is_waiting = std::any_of(survey.processes.begin(), survey.processes.end(), [&](const auto& process) {
    return !process.control_groups.has_value() && !known_.contains(process.ref.process_id);
  });
  if (has_ended_others_ || is_waiting) return absl::OkStatus();
  std::vector<int64_t> ids;
  ids.reserve(known_.size());
  for (const auto& [process_id, known] : known_) ids.push_back(known.id);
  absl::Status status = writer_->EndOthers(ids, now);
  has_ended_others_ = status.ok();
  return status;
}

}  // namespace heaptap::daemon
