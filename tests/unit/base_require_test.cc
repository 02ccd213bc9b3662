// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <thread>

#include "gtest/gtest.h"
#include "userspace/base/background.h"
#include "userspace/base/require.h"
#include "userspace/http/places.h"
#include "userspace/json/json.h"

namespace heaptap::base {
namespace {

// Aborts in a debug build; in others it does what it can.
void ExpectChecked(const std::function<void()>& violate, const char* text) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (ChecksPreconditions()) EXPECT_DEATH(violate(), text);
}

TEST(RequireTest, APreconditionThatDoesNotHold) {
  ExpectChecked([] { http::Places({.all = 2, .of_user = 1}).Leave(1000); },
                "places.cc:.*REQUIRES does not hold: .*taken_ > 0");
  ExpectChecked([] { json::Json(1).Add(2); }, "json.cc:.*REQUIRES does not hold: .*is_array");
}

TEST(RequireTest, AnObjectThatTwoThreadsUseAtOnce) {
  // What the thread does that uses it: others do the same meanwhile.
  const auto use_twice = [] {
    Background background(Background::Place::kCaller);
    background.Run([&] { std::thread([&] { background.HandleDone(); }).join(); }, [] {});
  };
  ExpectChecked(use_twice, "thread_checker.cc:.*REQUIRES does not hold");
  // One after the other may use it, and one within its own use.
  Background background(Background::Place::kCaller);
  int done = 0;
  background.Run([&] { background.HandleDone(); }, [&] { done++; });
  std::thread([&] { background.Run([] {}, [&] { done++; }); }).join();
  EXPECT_EQ(done, 2);
}

}  // namespace
}  // namespace heaptap::base
