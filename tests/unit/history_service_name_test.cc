// SPDX-License-Identifier: Apache-2.0
#include "gtest/gtest.h"
#include "userspace/history/service_name.h"

namespace heaptap::history {
namespace {

TEST(ServiceNameTest, UnitOrCommand) {
  EXPECT_EQ(ServiceName({{"/system.slice/redis-server.service"}}, "redis"), "redis-server");
  EXPECT_EQ(ServiceName({{"/"}, {"/system.slice/system-postgresql.slice/postgresql@15-main.service"}}, "postgres"),
            "postgresql@15-main");
  EXPECT_EQ(ServiceName({{"/user.slice/user-1000.slice/user@1000.service/app.slice/sync.service"}}, "x"), "sync");
  EXPECT_EQ(ServiceName({{"/user.slice/user-1000.slice/user@1000.service/init.scope"}}, "bash"), "bash");
  EXPECT_EQ(ServiceName({{"/docker/0123abcd"}}, "nginx"), "nginx");
  EXPECT_EQ(ServiceName({}, "make"), "make");
}

}  // namespace
}  // namespace heaptap::history
