// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gtest/gtest.h"
#include "userspace/process/service_name.h"

namespace heaptap::process {
namespace {

TEST(ServiceNameTest, UnitOrCommand) {
  EXPECT_EQ(ServiceName({{"/system.slice/redis-server.service"}}, "", "redis"), "redis-server");
  EXPECT_EQ(ServiceName({{"/"}, {"/system.slice/system-postgresql.slice/postgresql@15-main.service"}}, "", "postgres"),
            "postgresql@15-main");
  EXPECT_EQ(ServiceName({{"/user.slice/user-1000.slice/user@1000.service/app.slice/sync.service"}}, "", "x"), "sync");
  EXPECT_EQ(ServiceName({{"/user.slice/user-1000.slice/user@1000.service/init.scope"}}, "", "bash"), "bash");
  EXPECT_EQ(ServiceName({{"/docker/0123abcd"}}, "", "nginx"), "nginx");
  EXPECT_EQ(ServiceName({}, "", "make"), "make");
  EXPECT_EQ(ServiceName({}, "worker.py", "python3"), "worker.py");
  EXPECT_EQ(ServiceName({{"/system.slice/shop.service"}}, "worker.py", "python3"), "shop");
}

TEST(ServiceNameTest, NoUnitIsNoName) {
  EXPECT_EQ(UnitName({{"/system.slice/redis-server.service"}}), "redis-server");
  EXPECT_EQ(UnitName({{"/docker/0123abcd"}, {"/x/.service"}}), "");
  EXPECT_EQ(UnitName({}), "");
}

TEST(ServiceNameTest, LongestControlGroup) {
  EXPECT_EQ(LongestControlGroup({}), "");
  EXPECT_EQ(LongestControlGroup({{"/"}, {"/a/bc"}, {"/a"}}), "/a/bc");
  EXPECT_EQ(LongestControlGroup({{std::string(512, 'x')}}), std::string(512, 'x'));
  EXPECT_EQ(LongestControlGroup({{std::string(4000, 'x') + "/end"}}), "..." + std::string(508, 'x') + "/end");
}

TEST(ServiceNameTest, HostilePaths) {
  // No folder has such a name.
  EXPECT_EQ(UnitName({{"/" + std::string(256, 'x') + ".service"}}), "");
  EXPECT_EQ(UnitName({{"/" + std::string(247, 'x') + ".service"}}), std::string(247, 'x'));
  EXPECT_EQ(UnitName({{"/a.service/" + std::string(60000, '/')}}), "a");
  // Whoever shows them makes them printable.
  const std::string odd("/\x1b[2J\xff\0.service", 15);
  EXPECT_EQ(UnitName({{odd}}), odd.substr(1, 6));
  EXPECT_EQ(LongestControlGroup({{odd}}), odd);
  EXPECT_EQ(LongestControlGroup({{""}, {"no slash"}}), "no slash");
}

}  // namespace
}  // namespace heaptap::process
