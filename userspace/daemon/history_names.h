// SPDX-License-Identifier: Apache-2.0
//
// Finds the names of the frames of the history, in a thread of its own, while the process or its files are still there.
//
// Files of a user can make the thread wait, so users take turns. Thread-safe.
#ifndef HEAPTAP_USERSPACE_DAEMON_HISTORY_NAMES_H_
#define HEAPTAP_USERSPACE_DAEMON_HISTORY_NAMES_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "userspace/api/collector.h"
#include "userspace/api/process_symbols.h"
#include "userspace/base/mutex.h"
#include "userspace/crews/crews.h"
#include "userspace/elf/mappings.h"
#include "userspace/history/writer.h"
#include "userspace/profile/figures.h"

namespace heaptap::daemon {

class HistoryNames {
 public:
  // The most waiting tasks of one user. Further tasks are dropped: their frames are asked for again with a later path.
  static constexpr size_t kMaxTasks = 10000;

  // Frames in one file that a process has mapped.
  struct Task {
    profile::ProcessRef process = {};
    std::optional<uid_t> owner = {};
    elf::Mapping mapping = {};
    int64_t file = 0;
    std::vector<history::Writer::NewFrame> frames = {};
  };

  // `path`: the path of the database. The collector and the crews must outlive this object.
  HistoryNames(api::Collector& collector, worker::Crews& crews, std::string path);
  // REQUIRES: the collector no longer answers, and the crews are cancelled.
  ~HistoryNames();

  void Add(std::vector<Task> tasks);
  // Drops all tasks. The tasks of another database are void.
  void Clear();

 private:
  void Work();
  std::optional<Task> Next();
  void Do(const Task& task);

  api::ProcessSymbols symbols_;
  const std::string path_;
  base::Mutex mutex_;
  bool shall_stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<int64_t, std::deque<Task>> tasks_ ABSL_GUARDED_BY(mutex_);  // by user; -1: unknown
  int64_t last_user_ = -1;
  std::thread thread_;
};

}  // namespace heaptap::daemon

#endif  // HEAPTAP_USERSPACE_DAEMON_HISTORY_NAMES_H_
