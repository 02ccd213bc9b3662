// SPDX-License-Identifier: Apache-2.0
//
// A resource that one thread at a time may use, and that users use in turns: the next turn goes to the user whose last
// turn was longest ago. So a user waits for at most one turn of each other user, however many threads those users have.
//
// A turn must not last while its holder waits for anything but a processor. Thread-safe.
#ifndef HEAPTAP_USERSPACE_BASE_TURNS_H_
#define HEAPTAP_USERSPACE_BASE_TURNS_H_

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/base/subordinate_ids.h"

namespace heaptap::base {

class Turns {
 public:
  // None: an unknown user. All unknown users take turns as one.
  using User = std::optional<uid_t>;

  // Subordinate ids take turns as their user.
  explicit Turns(SubordinateIds ids) : ids_(std::move(ids)) {}

  // A turn ends with its object.
  struct End {
    void operator()(Turns* turns) const { turns->EndTurn(); }
  };
  using Turn = std::unique_ptr<Turns, End>;

  // Waits for a turn of the user. Null: there was no turn before the deadline.
  Turn Wait(const User& user, Instant deadline);

 private:
  // A thread that waits, with its user, and later with its turn.
  struct Waiter {
    User user;
    bool has_turn = false;
  };

  void EndTurn();
  // Gives the turn to the next one.
  void Pass() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SubordinateIds ids_;
  Mutex mutex_;
  bool is_taken_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<Waiter*> waiting_ ABSL_GUARDED_BY(mutex_);  // by arrival
  uint64_t turns_ ABSL_GUARDED_BY(mutex_) = 0;
  // The number of each user's last turn, since the last moment in which nobody waited.
  std::map<User, uint64_t> last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_TURNS_H_
