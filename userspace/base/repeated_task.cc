// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/repeated_task.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/base/messages.h"
#include "userspace/base/mutex.h"

namespace heaptap::base {
namespace {

struct Failing {
  std::string name;
  Instant since;
};

struct Registry {
  Mutex mutex;
  std::map<const RepeatedTask*, Failing> failing ABSL_GUARDED_BY(mutex);
};

// Never deleted: tasks may end while the program does.
Registry& All() {
  static Registry* const all = new Registry;
  return *all;
}

}  // namespace

void RepeatedTask::SetFailing(bool is_failing) {
  MutexLock lock(&All().mutex);
  if (is_failing) {
    All().failing.try_emplace(this, Failing{words_.name, Now()});
  } else {
    All().failing.erase(this);
  }
}

void RepeatedTask::Note(const absl::Status& result) {
  SetFailing(!result.ok());
  MutexLock lock(&mutex_);
  if (result.ok() == !is_said_) return;
  const Instant now = Now();
  if (result.ok()) {
    quiet_until_ = now + kQuiet;
    Say(absl::StrCat(words_.success, " again"));
  } else if (now < quiet_until_) {
    return;
  } else {
    Say(absl::StrCat(words_.failure, ": ", result.message(), "; ", words_.advice));
  }
  is_said_ = !result.ok();
}

std::map<std::string, absl::Time> FailingTasks() {
  std::map<std::string, absl::Time> tasks;
  MutexLock lock(&All().mutex);
  for (const auto& [task, failing] : All().failing) {
    const absl::Time since = ToWall(failing.since);
    const auto [found, is_new] = tasks.try_emplace(failing.name, since);
    if (!is_new) found->second = std::min(found->second, since);
  }
  return tasks;
}

}  // namespace heaptap::base
