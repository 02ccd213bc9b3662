// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/bounded_work.h"

#include <thread>
#include <utility>

namespace heaptap::service {

struct BoundedWork::Worker {
  absl::Mutex mutex;
  std::function<void()> work ABSL_GUARDED_BY(mutex);
  bool is_done ABSL_GUARDED_BY(mutex) = false;
  bool is_ending ABSL_GUARDED_BY(mutex) = false;
  std::shared_ptr<std::atomic<int>> abandoned;  // counts this thread; null until it is abandoned
};

BoundedWork::~BoundedWork() {
  absl::MutexLock lock(&mutex_);
  if (worker_ == nullptr) return;
  absl::MutexLock worker_lock(&worker_->mutex);
  worker_->is_ending = true;
}

void BoundedWork::Loop(std::shared_ptr<Worker> worker) {
  absl::MutexLock lock(&worker->mutex);
  for (;;) {
    const auto has_something = [&worker]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(worker->mutex) {
      return worker->work != nullptr || worker->is_ending;
    };
    worker->mutex.Await(absl::Condition(&has_something));
    if (worker->work == nullptr) return;
    const std::function<void()> work = std::exchange(worker->work, nullptr);
    worker->mutex.Unlock();
    work();
    worker->mutex.Lock();
    worker->is_done = true;
    if (worker->is_ending) {
      if (worker->abandoned != nullptr) (*worker->abandoned)--;
      return;
    }
  }
}

bool BoundedWork::Run(std::function<void()> work, absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  if (*abandoned_ >= kMaxAbandoned) return false;
  if (worker_ == nullptr) {
    worker_ = std::make_shared<Worker>();
    std::thread(Loop, worker_).detach();
  }
  const std::shared_ptr<Worker> worker = worker_;
  absl::MutexLock worker_lock(&worker->mutex);
  worker->work = std::move(work);
  worker->is_done = false;
  if (worker->mutex.AwaitWithTimeout(absl::Condition(&worker->is_done), limit)) return true;
  worker->is_ending = true;
  worker->abandoned = abandoned_;
  ++*abandoned_;
  worker_ = nullptr;
  return false;
}

int BoundedWork::abandoned() const { return *abandoned_; }

}  // namespace heaptap::service
