// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "gtest/gtest.h"
#include "userspace/http/places.h"

namespace heaptap::http {
namespace {

// Takes places for a user until there is none. Returns how many.
size_t TakeAll(Places& places, std::optional<uid_t> user) {
  size_t taken = 0;
  while (places.Take(user)) taken++;
  return taken;
}

TEST(PlacesTest, UsersWhoHaveNoneGetOne) {
  Places places({.all = 32, .of_user = 8, .kept_for_root = 8});
  EXPECT_EQ(TakeAll(places, 1000), 8u);
  EXPECT_EQ(TakeAll(places, 1001), 8u);
  for (uid_t user = 1002; user < 1010; user++) EXPECT_EQ(TakeAll(places, user), 1u) << user;
  EXPECT_EQ(TakeAll(places, 1010), 0u);
  EXPECT_EQ(TakeAll(places, 0), 8u);
  places.Leave(1000);
  EXPECT_EQ(TakeAll(places, 1000), 0u) << "the place is for another user";
  EXPECT_EQ(TakeAll(places, 1011), 1u);
}

TEST(PlacesTest, UnknownUsersShareAll) {
  Places places({.all = 16, .of_user = 8});
  EXPECT_EQ(TakeAll(places, 1000), 8u);
  EXPECT_EQ(TakeAll(places, std::nullopt), 8u);
  places.Leave(1000);
  EXPECT_EQ(TakeAll(places, std::nullopt), 1u);
}

}  // namespace
}  // namespace heaptap::http
