// SPDX-License-Identifier: Apache-2.0
//
// Tests the two writers of single samples by reading their JSON.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "userspace/json/log_json.h"
#include "userspace/json/recent_json.h"

namespace heaptap::formats {
namespace {

using profile::Deed;
using profile::SampleRecords;

std::shared_ptr<const std::vector<uint64_t>> Frames(std::vector<uint64_t> frames) {
  return std::make_shared<std::vector<uint64_t>>(std::move(frames));
}

SampleRecords TwoSamples() {
  return {.period = 1 << 19,
          .demanded = 5,
          .pid = 42,
          .samples = {{.size = 100,
                       .allocation = {.tid = 7, .thread_name = "main", .time = 10, .frames = Frames({0x1001, 0x2002})}},
                      {.size = 200,
                       .allocation = {.tid = 7, .thread_name = "main", .time = 20, .frames = Frames({0x1001})},
                       .free = Deed{.tid = 8, .thread_name = "\xff\"", .time = 50, .frames = Frames({0x1001})}}}};
}

TEST(RecentJson, Nothing) {
  const nlohmann::json all = nlohmann::json::parse(json::RecentJson({.period = 1, .demanded = ~uint64_t{0}}));
  EXPECT_EQ(all, (nlohmann::json{
                     {"sample_interval", 1}, {"recent_alloc_max", -1}, {"recent_alloc", nlohmann::json::array()}}));
}

TEST(RecentJson, LiveAndReleased) {
  const nlohmann::json all = nlohmann::json::parse(json::RecentJson(TwoSamples()));
  EXPECT_EQ(all["sample_interval"], 1 << 19);
  EXPECT_EQ(all["recent_alloc_max"], 5);
  ASSERT_EQ(all["recent_alloc"].size(), 2);
  EXPECT_EQ(all["recent_alloc"][0], (nlohmann::json{{"size", 100},
                                                    {"usize", 100},
                                                    {"released", false},
                                                    {"alloc_thread_uid", 7},
                                                    {"alloc_thread_name", "main"},
                                                    {"alloc_time", 10},
                                                    {"alloc_trace", {"0x1001", "0x2002"}}}));
  const nlohmann::json& released = all["recent_alloc"][1];
  EXPECT_EQ(released["released"], true);
  EXPECT_EQ(released["dalloc_thread_uid"], 8);
  EXPECT_EQ(released["dalloc_thread_name"], "\uFFFD\"") << "any byte may be in a name";
  EXPECT_EQ(released["dalloc_time"], 50);
  EXPECT_EQ(released["dalloc_trace"], nlohmann::json({"0x1001"}));
}

TEST(LogJson, Nothing) {
  const nlohmann::json all = nlohmann::json::parse(json::LogJson({.period = 1, .demanded = 0}));
  EXPECT_EQ(all["info"]["lg_sample_rate"], 0);
  EXPECT_EQ(all["info"]["lost_allocations"], 0);
  EXPECT_EQ(all["allocations"], nlohmann::json::array());
  EXPECT_EQ(all["threads"], nlohmann::json::array());
  EXPECT_EQ(all["stack_traces"], nlohmann::json::array());
}

TEST(LogJson, FreedSamplesByNumbersOfThreadsAndStacks) {
  const nlohmann::json all = nlohmann::json::parse(json::LogJson(TwoSamples()));
  EXPECT_EQ(all["info"]["duration"], 40);
  EXPECT_EQ(all["info"]["lg_sample_rate"], 19);
  EXPECT_EQ(all["info"]["pid"], 42);
  EXPECT_EQ(all["info"]["lost_allocations"], 3) << "five were asked for, two are there";
  ASSERT_EQ(all["allocations"].size(), 1) << "as in jemalloc's log, only what was freed";
  const nlohmann::json& allocation = all["allocations"][0];
  EXPECT_EQ(allocation["usize"], 200);
  EXPECT_EQ(allocation["alloc_timestamp"], 20);
  EXPECT_EQ(allocation["free_timestamp"], 50);
  EXPECT_EQ(allocation["alloc_trace"], allocation["free_trace"]);
  EXPECT_EQ(all["stack_traces"][allocation["alloc_trace"].get<size_t>()], nlohmann::json({"0x1001"}));
  EXPECT_EQ(all["threads"][allocation["alloc_thread"].get<size_t>()]["thr_uid"], 7);
  EXPECT_EQ(all["threads"][allocation["free_thread"].get<size_t>()]["thr_uid"], 8);
}

}  // namespace
}  // namespace heaptap::formats
