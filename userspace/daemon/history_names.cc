// SPDX-License-Identifier: Apache-2.0
#include "userspace/daemon/history_names.h"

#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/messages.h"
#include "userspace/base/mutex.h"
#include "userspace/base/threads.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/snapshot.h"

namespace heaptap::daemon {

HistoryNames::HistoryNames(api::Collector& collector, worker::Crews& crews, std::string path)
    : symbols_(collector, crews), path_(std::move(path)) {
  absl::StatusOr<std::thread> thread = base::StartThread([this] { Work(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    base::Say(absl::StrCat(thread.status().message(), "; the call paths of the history get no names"));
  }
}

HistoryNames::~HistoryNames() {
  {
    base::MutexLock lock(&mutex_);
    shall_stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void HistoryNames::Add(std::vector<Task> tasks) {
  base::MutexLock lock(&mutex_);
  for (Task& task : tasks) {
    std::deque<Task>& own = tasks_[task.owner.has_value() ? int64_t{*task.owner} : -1];
    if (own.size() < kMaxTasks) own.push_back(std::move(task));
  }
}

void HistoryNames::Clear() {
  base::MutexLock lock(&mutex_);
  tasks_.clear();
}

std::optional<HistoryNames::Task> HistoryNames::Next() {
  base::MutexLock lock(&mutex_);
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return shall_stop_ || !tasks_.empty(); };
  mutex_.Await(absl::Condition(&has_work));
  if (shall_stop_) return std::nullopt;
  auto user = tasks_.upper_bound(last_user_);
  if (user == tasks_.end()) user = tasks_.begin();
  last_user_ = user->first;
  Task task = std::move(user->second.front());
  user->second.pop_front();
  if (user->second.empty()) tasks_.erase(user);
  return task;
}

void HistoryNames::Work() {
  for (std::optional<Task> task = Next(); task.has_value(); task = Next()) Do(*task);
}

void HistoryNames::Do(const Task& task) {
  const auto address = [&](const history::Writer::NewFrame& frame) {
    return frame.place.offset - task.mapping.file_offset + task.mapping.start;
  };
  profile::Snapshot snapshot;
  snapshot.profile.pid = task.process.pid;
  snapshot.process_id = task.process.process_id;
  snapshot.profile.mappings = {task.mapping};
  snapshot.profile.contexts.reserve(task.frames.size());
  for (const history::Writer::NewFrame& frame : task.frames) {
    // Contexts hold return addresses, and a place in the history lies inside the call.
    snapshot.profile.contexts.push_back({.frames = {address(frame) + 1}});
  }
  const profile::FindSourceFrames find = symbols_.FindAll(snapshot);
  std::vector<history::NameWriter::FrameNames> names;
  names.reserve(task.frames.size());
  for (const history::Writer::NewFrame& frame : task.frames) names.push_back({frame.frame, find(address(frame))});
  // A frame without a name is shown as its place. The thread that writes points reports errors of the database.
  const absl::StatusOr<std::unique_ptr<history::NameWriter>> writer = history::NameWriter::Open(path_);
  if (!writer.ok()) return;
  (*writer)->Write(task.file, absl::BytesToHexString(snapshot.profile.mappings[0].build_id), names).IgnoreError();
}

}  // namespace heaptap::daemon
