// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "userspace/views/firefox.h"

namespace heaptap::report {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// The call tree that the Firefox Profiler makes of allocations: bytes by path, outermost function first.
std::map<std::string, double> TreeOf(const nlohmann::json& thread, bool retained) {
  const nlohmann::json& all = thread.at("nativeAllocations");
  std::map<int64_t, size_t> held;  // by address
  std::vector<size_t> chosen;
  for (size_t i = 0; i < all.at("length"); i++) {
    const int64_t address = all.at("memoryAddress")[i];
    if (all.at("weight")[i] >= 0) {
      EXPECT_TRUE(held.emplace(address, i).second) << "an address is used twice";
      if (!retained) chosen.push_back(i);
    } else {
      EXPECT_EQ(all.at("weight")[held.at(address)], -all.at("weight")[i].get<double>());
      held.erase(address);
    }
    EXPECT_TRUE(i == 0 || all.at("time")[i - 1] <= all.at("time")[i]);
  }
  if (retained) {
    for (const auto& [address, i] : held) chosen.push_back(i);
  }
  std::map<std::string, double> tree;
  for (const size_t i : chosen) {
    std::string path;
    for (nlohmann::json stack = all.at("stack")[i]; !stack.is_null();) {
      const size_t at = stack;
      const size_t function = thread.at("frameTable").at("func")[thread.at("stackTable").at("frame")[at].get<size_t>()];
      const size_t name = thread.at("funcTable").at("name")[function];
      path = thread.at("stringArray")[name].get<std::string>() + (path.empty() ? "" : ";") + path;
      stack = thread.at("stackTable").at("prefix")[at];
    }
    tree[path] += all.at("weight")[i].get<double>();
  }
  return tree;
}

std::vector<profile::SourceFrame> Find(uint64_t address) {
  if (address == 0x10) return {{.function = "main", .file = "/src/main.cc", .line = 10}};
  if (address == 0x20) return {{.function = "parse", .file = "/src/parse.h", .line = 5}, {.function = "load"}};
  return {};
}

profile::Profile MakeProfile() {
  profile::Profile profile;
  const auto add = [&](std::vector<uint64_t> frames, double live, double allocated) {
    profile.contexts.push_back(
        {.frames = std::move(frames), .threads = {{.live = {1, 1, 1, live}, .allocated = {2, 2, 2, allocated}}}});
  };
  add({0x21, 0x11}, 60, 60);
  add({0x1061, 0x11}, 30, 300);
  add({0x11}, 0, 7);
  add({}, 1, 1);
  profile.mappings = {{.start = 0x1000, .end = 0x2000, .file_offset = 0x500, .inode = 1, .path = "/usr/lib/libx.so"}};
  return profile;
}

nlohmann::json Written(const NamedProfile& named) {
  const std::vector<Path> paths(named.paths().begin(), named.paths().end());
  return nlohmann::json::parse(Firefox(named, paths, {.name = "a\"b"}, 7));
}

TEST(FirefoxTest, AllocationsAreRetainedOrFreed) {
  const nlohmann::json profile = Written(NamedProfile(MakeProfile(), Find));
  EXPECT_EQ(profile.at("meta").at("product"), "a\"b");
  EXPECT_EQ(profile.at("meta").at("preprocessedProfileVersion"), 48);
  const nlohmann::json& thread = profile.at("threads").at(0);
  EXPECT_EQ(thread.at("pid"), "7");
  EXPECT_THAT(TreeOf(thread, true), UnorderedElementsAre(Pair("main;load;parse", 60), Pair("main;libx.so+0x560", 30),
                                                         Pair("[unknown call path]", 1)));
  EXPECT_THAT(TreeOf(thread, false), UnorderedElementsAre(Pair("main;load;parse", 60), Pair("main;libx.so+0x560", 300),
                                                          Pair("main", 7), Pair("[unknown call path]", 1)));
  // `parse` is inlined in `load`, at one place.
  const nlohmann::json& depths = thread.at("frameTable").at("inlineDepth");
  EXPECT_EQ(std::count(depths.begin(), depths.end(), 1), 1);
  EXPECT_EQ(profile.at("libs").at(0).at("path"), "/usr/lib/libx.so");
}

TEST(FirefoxTest, ColumnsOfATableHaveOneLength) {
  for (const profile::Profile& profile : {MakeProfile(), profile::Profile()}) {
    const nlohmann::json thread = Written(NamedProfile(profile, Find)).at("threads").at(0);
    for (const char* name : {"nativeAllocations", "stackTable", "frameTable", "funcTable", "resourceTable", "samples",
                             "markers", "nativeSymbols"}) {
      for (const auto& [column, values] : thread.at(name).items()) {
        if (!values.is_array()) continue;
        EXPECT_EQ(values.size(), thread.at(name).at("length")) << name << "." << column;
      }
    }
  }
}

TEST(FirefoxTest, DifferencesLeaveOutWhatShrank) {
  const profile::Profile profile = {
      .contexts = {{.frames = {0x11}, .threads = {{.live = {0, 0, -2, -50}, .allocated = {1, 20, 1, 20}}}},
                   {.frames = {0x21}, .threads = {{.live = {0, 0, -2, -50}}}}}};
  const nlohmann::json thread = Written(NamedProfile(profile, Find)).at("threads").at(0);
  EXPECT_TRUE(TreeOf(thread, true).empty());
  EXPECT_THAT(TreeOf(thread, false), UnorderedElementsAre(Pair("main", 20)));
}

}  // namespace
}  // namespace heaptap::report
