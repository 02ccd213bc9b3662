// SPDX-License-Identifier: Apache-2.0
#include "userspace/http/client_time.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/bounds.h"
#include "userspace/base/mutex.h"

namespace heaptap::http {
namespace {

// Holds the seconds to wait.
constexpr char kWaitPayload[] = "heaptap/seconds-to-wait";

}  // namespace

absl::Status ClientTime::Check(std::optional<uid_t> user) {
  absl::Duration wait;
  {
    base::MutexLock lock(&mutex_);
    wait = accounts_.TimeUntil(user, base::Now());
  }
  if (wait == absl::ZeroDuration()) return absl::OkStatus();
  const int64_t seconds = absl::ToInt64Seconds(absl::Ceil(wait, absl::Seconds(1)));
  const std::string who = user.has_value() ? absl::StrCat("user ", *user, " has") : "unknown users have";
  base::CountBeyond(base::Bound::kClientTime);
  absl::Status status = absl::ResourceExhaustedError(absl::StrCat(who, " used up the time for profiles; try again in ",
                                                                  seconds, seconds == 1 ? " second" : " seconds"));
  status.SetPayload(kWaitPayload, absl::Cord(absl::StrCat(seconds)));
  return status;
}

void ClientTime::Charge(std::optional<uid_t> user, absl::Duration used) {
  base::MutexLock lock(&mutex_);
  accounts_.Charge(user, used, base::Now());
}

std::optional<int64_t> SecondsToWait(const absl::Status& status) {
  const auto payload = status.GetPayload(kWaitPayload);
  int64_t seconds = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &seconds)) return std::nullopt;
  return seconds;
}

void Asker::ChargeAtMost(absl::Duration most) {
  const absl::Duration now = base::ThreadProcessorTime();
  time_.Charge(user_, std::min(now - std::exchange(charged_, now), most));
}

absl::Status Asker::WaitForRoom(base::Instant deadline) {
  if (room_ == nullptr || part_ != nullptr) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<AnswerRoom::Part>> part = room_->Wait(user_, deadline);
  if (!part.ok()) return part.status();
  part_ = *std::move(part);
  return absl::OkStatus();
}

void Asker::AddProfile(uint64_t bytes) {
  profile_bytes_ += bytes;
  if (part_ != nullptr && !needs_all_room_) part_->SetBytes(profile_bytes_);
}

std::shared_ptr<void> Asker::EndAnswer(uint64_t bytes) {
  if (part_ != nullptr) part_->SetBytes(bytes);
  return std::move(part_);
}

}  // namespace heaptap::http
