// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/answer_room.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/bounds.h"
#include "userspace/base/user_ids.h"

namespace heaptap::http {

void AnswerRoom::Part::SetBytes(uint64_t bytes) {
  base::MutexLock lock(&room_.mutex_);
  uint64_t& all = room_.bytes_[user_];
  all += bytes - std::exchange(bytes_, bytes);
  if (all == 0) room_.bytes_.erase(user_);
}

absl::StatusOr<std::unique_ptr<AnswerRoom::Part>> AnswerRoom::Wait(std::optional<uid_t> user, base::Instant deadline) {
  if (user.has_value()) user = ids_.OwnerOf(*user);
  base::MutexLock lock(&mutex_);
  const auto has_room = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = bytes_.find(user);
    return user == base::kRoot || found == bytes_.end() || found->second < kBytesOfUser;
  };
  base::AwaitUntil(mutex_, absl::Condition(&has_room), deadline);
  if (!has_room()) {
    base::CountBeyond(base::Bound::kAnswerRoom);
    return absl::UnavailableError(absl::StrCat("other answers to the same user may take ", kBytesOfUser >> 20,
                                               " MiB until they are made and read; ask again later"));
  }
  bytes_[user] += kBytesOfUser;
  return std::make_unique<Part>(*this, user, kBytesOfUser);
}

}  // namespace heaptap::http
