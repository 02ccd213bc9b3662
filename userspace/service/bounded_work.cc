// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/bounded_work.h"

#include <thread>
#include <utility>

namespace heaptap::service {

struct BoundedWork::Worker {
  absl::Mutex mutex;
  std::function<void()> work ABSL_GUARDED_BY(mutex);
  bool is_done ABSL_GUARDED_BY(mutex) = false;
  bool shall_end ABSL_GUARDED_BY(mutex) = false;
  std::shared_ptr<std::atomic<int>> given_up;  // counts it while it is not null
};

BoundedWork::~BoundedWork() {
  absl::MutexLock lock(&mutex_);
  if (worker_ == nullptr) return;
  absl::MutexLock worker_lock(&worker_->mutex);
  worker_->shall_end = true;
}

void BoundedWork::Loop(std::shared_ptr<Worker> worker) {
  absl::MutexLock lock(&worker->mutex);
  for (;;) {
    const auto has_something = [&worker]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(worker->mutex) {
      return worker->work != nullptr || worker->shall_end;
    };
    worker->mutex.Await(absl::Condition(&has_something));
    if (worker->work == nullptr) return;
    const std::function<void()> work = std::exchange(worker->work, nullptr);
    worker->mutex.Unlock();
    work();
    worker->mutex.Lock();
    worker->is_done = true;
    if (worker->shall_end) {
      if (worker->given_up != nullptr) (*worker->given_up)--;
      return;
    }
  }
}

bool BoundedWork::Run(std::function<void()> work, absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  if (*given_up_ >= kMaxGivenUp) return false;
  if (worker_ == nullptr) {
    worker_ = std::make_shared<Worker>();
    std::thread(Loop, worker_).detach();
  }
  const std::shared_ptr<Worker> worker = worker_;
  absl::MutexLock worker_lock(&worker->mutex);
  worker->work = std::move(work);
  worker->is_done = false;
  if (worker->mutex.AwaitWithTimeout(absl::Condition(&worker->is_done), limit)) return true;
  worker->shall_end = true;
  worker->given_up = given_up_;
  ++*given_up_;
  worker_ = nullptr;
  return false;
}

int BoundedWork::given_up() const { return *given_up_; }

}  // namespace heaptap::service
