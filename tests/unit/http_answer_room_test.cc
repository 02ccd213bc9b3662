// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "userspace/base/bounds.h"
#include "userspace/base/clock.h"
#include "userspace/base/user_ids.h"
#include "userspace/http/answer_room.h"
#include "userspace/http/client_time.h"

namespace heaptap::http {
namespace {

constexpr uid_t kUser = 1000;
constexpr uint64_t kAll = AnswerRoom::kBytesOfUser;

class AnswerRoomTest : public ::testing::Test {
 protected:
  using Part = std::unique_ptr<AnswerRoom::Part>;
  // Null: there is no room now.
  Part Take(std::optional<uid_t> user) {
    absl::StatusOr<Part> part = room_.Wait(user, base::Now());
    EXPECT_TRUE(part.ok() || absl::IsUnavailable(part.status())) << part.status();
    return part.ok() ? *std::move(part) : nullptr;
  }

  AnswerRoom room_{base::SubordinateIds()};
};

TEST_F(AnswerRoomTest, OneAnswerWhoseSizeIsUnknown) {
  Part first = Take(kUser);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(Take(kUser), nullptr);
  EXPECT_NE(Take(kUser + 1), nullptr) << "another user";
  EXPECT_NE(Take(std::nullopt), nullptr) << "an unknown one";
  first = nullptr;
  EXPECT_NE(Take(kUser), nullptr);
}

TEST_F(AnswerRoomTest, AsManyAsFit) {
  const Part first = Take(kUser);
  first->SetBytes(kAll - 1);
  const Part second = Take(kUser);
  ASSERT_NE(second, nullptr) << "whatever its size will be";
  second->SetBytes(1);
  EXPECT_EQ(Take(kUser), nullptr);
  first->SetBytes(0);
  EXPECT_NE(Take(kUser), nullptr);
}

TEST_F(AnswerRoomTest, RootHasNoBound) {
  std::vector<Part> parts;
  for (int i = 0; i < 10; i++) parts.push_back(Take(base::kRoot));
  EXPECT_NE(parts.back(), nullptr);
}

TEST_F(AnswerRoomTest, WhoWaitsGetsItWhenThereIsRoom) {
  Part first = Take(kUser);
  std::thread other([this] { EXPECT_TRUE(room_.Wait(kUser, base::Instant::InfiniteFuture()).ok()); });
  first = nullptr;
  other.join();
}

TEST_F(AnswerRoomTest, ARefusalIsCounted) {
  const Part first = Take(kUser);
  const uint64_t before = base::CountsBeyondBounds()["answer_room"];
  EXPECT_EQ(Take(kUser), nullptr);
  EXPECT_EQ(base::CountsBeyondBounds()["answer_room"], before + 1);
}

// From the first profile until the answer is sent.
TEST_F(AnswerRoomTest, OfAnAnswer) {
  ClientTime time;
  std::shared_ptr<void> sending;
  {
    Asker asker(time, kUser, &room_);
    EXPECT_TRUE(asker.WaitForRoom(base::Now()).ok());
    EXPECT_EQ(Take(kUser), nullptr);
    asker.AddProfile(kAll - 1);
    EXPECT_NE(Take(kUser), nullptr);
    EXPECT_TRUE(asker.WaitForRoom(base::Now()).ok()) << "it has room";
    asker.AddProfile(1);
    EXPECT_EQ(Take(kUser), nullptr) << "two profiles";
    sending = asker.EndAnswer(kAll);
  }
  EXPECT_EQ(Take(kUser), nullptr);
  sending = nullptr;
  EXPECT_NE(Take(kUser), nullptr);
}

TEST_F(AnswerRoomTest, OfAnAnswerThatMayBecomeMuchLargerThanItsProfile) {
  ClientTime time;
  Asker asker(time, kUser, &room_);
  asker.NeedAllRoom();
  EXPECT_TRUE(asker.WaitForRoom(base::Now()).ok());
  asker.AddProfile(1);
  EXPECT_EQ(Take(kUser), nullptr);
  const std::shared_ptr<void> sending = asker.EndAnswer(1);
  EXPECT_NE(Take(kUser), nullptr);
}

TEST_F(AnswerRoomTest, AnAnswerWithoutAProfileNeedsNone) {
  ClientTime time;
  const Part other = Take(kUser);
  Asker asker(time, kUser, &room_);
  EXPECT_EQ(asker.EndAnswer(kAll), nullptr);
  Asker unbounded(time, kUser);
  EXPECT_TRUE(unbounded.WaitForRoom(base::Now()).ok());
}

}  // namespace
}  // namespace heaptap::http
