// SPDX-License-Identifier: Apache-2.0
//
// How much memory the answers to each client's user may take, while they are made and until the client has read them.
// Root has no bound. Thread-safe.
#ifndef HEAPTAP_USERSPACE_HTTP_ANSWER_ROOM_H_
#define HEAPTAP_USERSPACE_HTTP_ANSWER_ROOM_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/base/subordinate_ids.h"

namespace heaptap::http {

class AnswerRoom {
 public:
  // As text, the largest profile (65,536 call paths of 127 frames) takes about this much. The answer that exceeds the
  // bound is the last one until other answers have been read.
  static constexpr uint64_t kBytesOfUser = 128 << 20;

  // A subordinate id counts as the user who owns it.
  explicit AnswerRoom(base::SubordinateIds ids) : ids_(std::move(ids)) {}

  // The room that one answer takes. Must not outlive the AnswerRoom.
  class Part {
   public:
    Part(AnswerRoom& room, std::optional<uid_t> user, uint64_t bytes) : room_(room), user_(user), bytes_(bytes) {}
    ~Part() { SetBytes(0); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    void SetBytes(uint64_t bytes);

   private:
    AnswerRoom& room_;
    const std::optional<uid_t> user_;
    uint64_t bytes_;
  };

  // Waits until the user's other answers leave room for another one. The size of the new answer is unknown, so it takes
  // all that a user may have until SetBytes. `user`: none if it is unknown; all unknown users count as one.
  // Unavailable: there was no room by the deadline.
  absl::StatusOr<std::unique_ptr<Part>> Wait(std::optional<uid_t> user, base::Instant deadline);

 private:
  const base::SubordinateIds ids_;
  base::Mutex mutex_;
  std::map<std::optional<uid_t>, uint64_t> bytes_ ABSL_GUARDED_BY(mutex_);  // without users that have none
};

}  // namespace heaptap::http

#endif  // HEAPTAP_USERSPACE_HTTP_ANSWER_ROOM_H_
