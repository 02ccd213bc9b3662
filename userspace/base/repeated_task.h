// SPDX-License-Identifier: Apache-2.0
//
// Tasks that are tried again and again, such as the writing of the history. The first failure is reported once, and so
// is the success that follows. Meanwhile the task is one of FailingTasks(), which clients are shown.
#ifndef HEAPTAP_USERSPACE_BASE_REPEATED_TASK_H_
#define HEAPTAP_USERSPACE_BASE_REPEATED_TASK_H_

#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"

namespace heaptap::base {

// Thread-safe.
class RepeatedTask {
 public:
  // For this time after a task works again, its failures are not reported: a task that fails every other time would
  // fill the log.
  static constexpr absl::Duration kQuiet = absl::Minutes(1);

  struct Words {
    std::string name = {};     // in figures: "history"
    std::string failure = {};  // "cannot write the history"
    std::string success = {};  // "the history is written", to which " again" is added
    std::string advice = {};   // what a failure means, or what to do
  };
  explicit RepeatedTask(Words words) : words_(std::move(words)) {}
  ~RepeatedTask() { SetFailing(false); }
  RepeatedTask(const RepeatedTask&) = delete;
  RepeatedTask& operator=(const RepeatedTask&) = delete;

  // Notes the result of a try. Says "<failure>: <message>; <advice>", or "<success> again".
  void Note(const absl::Status& result);

 private:
  void SetFailing(bool is_failing);

  const Words words_;
  Mutex mutex_;
  bool is_said_ ABSL_GUARDED_BY(mutex_) = false;  // that it fails
  Instant quiet_until_ ABSL_GUARDED_BY(mutex_) = Instant::InfinitePast();
};

// The tasks of this process whose last try failed, by name, with the time since when they fail. Tasks with the same
// name count as one, which fails as long as one of them does. Thread-safe.
std::map<std::string, absl::Time> FailingTasks();

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_REPEATED_TASK_H_
