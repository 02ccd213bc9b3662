// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/newcomers.h"

#include <utility>

#include "userspace/base/clock.h"
#include "userspace/process/facts.h"

namespace heaptap::recording {
namespace {

// Of the recording's time, each user's looks get this share. The burst is enough for hundreds of ordinary processes.
constexpr double kLookShare = 0.1;
constexpr absl::Duration kLookBurst = absl::Milliseconds(100);

// Events and clients wait while processes are looked at.
constexpr absl::Duration kLookTime = absl::Milliseconds(100);

}  // namespace

Newcomers::Newcomers(worker::Hands& hands, base::SubordinateIds ids)
    : hands_(hands), accounts_(std::move(ids), kLookShare, kLookBurst) {}

void Newcomers::Look(absl::FunctionRef<void(pid_t)> look) {
  const base::Instant end = base::Now() + kLookTime;
  for (size_t left = waiting_.size(); left > 0 && !waiting_.empty(); left--) {
    auto next = waiting_.upper_bound(last_);
    if (next == waiting_.end()) next = waiting_.begin();
    const pid_t pid = next->first;
    Waiting& waiting = next->second;
    const base::Instant begin = base::Now();
    // The next call begins with this one.
    if (begin > end) return;
    last_ = pid;
    if (!waiting.owner_known) {
      const absl::StatusOr<process::Facts> facts = hands_.Facts(pid);
      waiting = {.owner_known = true, .owner = facts.ok() ? facts->owner : std::nullopt};
    }
    if (!accounts_.HasTime(waiting.owner, begin)) continue;
    const std::optional<uid_t> owner = waiting.owner;
    waiting_.erase(next);
    look(pid);
    const base::Instant now = base::Now();
    accounts_.Charge(owner, now - begin, now);
  }
}

void Newcomers::LookAtAll(absl::FunctionRef<void(pid_t)> look, base::Instant deadline) {
  while (!waiting_.empty() && base::Now() < deadline) {
    const pid_t pid = waiting_.begin()->first;
    waiting_.erase(waiting_.begin());
    look(pid);
  }
}

}  // namespace heaptap::recording
