// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/mutex.h"

#include "userspace/base/require.h"

namespace heaptap::base {
namespace {

thread_local uint32_t held_ranks = 0;  // a bit for each rank; in debug builds

uint32_t BitOf(LockRank rank) { return 1U << static_cast<uint32_t>(rank); }

}  // namespace

MutexLock::MutexLock(Mutex* mutex) : mutex_(mutex) {
  if (ChecksPreconditions()) {
    const uint32_t rank = BitOf(mutex->rank());
    if (held_ranks >= rank) AbortForPrecondition("no mutex of this or a later rank is held", __FILE__, __LINE__);
    held_ranks |= rank;
  }
  mutex->Lock();
}

MutexLock::~MutexLock() {
  // Before the unlock, because another thread may delete the mutex as soon as it is unlocked.
  if (ChecksPreconditions()) held_ranks &= ~BitOf(mutex_->rank());
  mutex_->Unlock();
}

}  // namespace heaptap::base
