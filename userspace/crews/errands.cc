// SPDX-License-Identifier: Apache-2.0
#include "userspace/crews/errands.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "userspace/base/bounds.h"

namespace heaptap::worker {
namespace {

// More readers would read faster than the kernel takes the tables.
size_t MaxOfRoot() {
  return std::clamp<size_t>(std::thread::hardware_concurrency(), Errands::kMaxOfUser, Errands::kMaxOfRoot);
}

}  // namespace

Errands::Errands(Urgency urgency, base::SubordinateIds ids, absl::Duration burst)
    : crews_(urgency),
      threads_({.of_user = kMaxOfUser,
                .of_root = MaxOfRoot(),
                .of_all = Crews::kMaxAtWork,
                .waiting = kMaxWaiting,
                .share = kShare,
                .burst = burst},
               std::move(ids)) {}

Errands::JobId Errands::Start(uid_t payer, uid_t user, Request request, const Limits& limits, Done done) {
  struct Job {
    Request request;
    Answer answer = {};
  };
  const auto job = std::make_shared<Job>(Job{.request = std::move(request)});
  const auto pass_on = [job, done = std::move(done)] { done(std::move(job->answer)); };
  if (!threads_.HasRoom(payer)) {
    base::CountBeyond(base::Bound::kFilesToRead);
    job->answer.status = absl::UnavailableError("too many files of this user wait to be read");
    threads_.Refuse(payer, pass_on);
    return kNoJob;
  }
  const auto work = [this, job, user, limits] {
    job->answer = job->request.job == worker::Job::kAnswer ? crews_.DoByHands(job->request, limits)
                                                           : crews_.Do(user, job->request, limits);
    // A dump has tens of megabytes, so it is freed here and not in the owner's thread.
    job->request.question = {};
    return job->answer.processor_wait;
  };
  return threads_.Start(payer, work, pass_on);
}

}  // namespace heaptap::worker
