// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <protozero/pbf_reader.hpp>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/views/perfetto.h"

namespace heaptap::report {
namespace {

using ::testing::ElementsAre;

// Reads a trace as trace_processor does, by the numbers of fields.
struct Trace {
  explicit Trace(const std::string& text) {
    protozero::pbf_reader trace(text);
    EXPECT_TRUE(trace.next(1));
    protozero::pbf_reader packet = trace.get_message();
    EXPECT_FALSE(trace.next());
    while (packet.next()) {
      switch (packet.tag()) {
        case 12:
          ReadInterned(packet.get_message());
          break;
        case 37:
          ReadProfile(packet.get_message());
          break;
        default:
          packet.skip();
      }
    }
  }

  void ReadInterned(protozero::pbf_reader message) {
    while (message.next()) {
      const uint32_t kind = message.tag();
      protozero::pbf_reader entry = message.get_message();
      std::map<uint32_t, std::vector<uint64_t>> numbers;
      std::string text;
      while (entry.next()) {
        if (entry.wire_type() == protozero::pbf_wire_type::length_delimited) {
          text = entry.get_string();
        } else {
          numbers[entry.tag()].push_back(entry.get_uint64());
        }
      }
      const uint64_t id = numbers[1].at(0);
      EXPECT_GT(id, 0u);
      if (kind == 5) functions[id] = text;
      if (kind == 18) sources[id] = text;
      if (kind == 6) frames[id] = numbers;
      if (kind == 7) callstacks[id] = numbers[2];
    }
  }

  void ReadProfile(protozero::pbf_reader message) {
    while (message.next()) {
      if (message.tag() != 5) {
        message.skip();
        continue;
      }
      protozero::pbf_reader process = message.get_message();
      while (process.next()) {
        if (process.tag() == 1)
          pid = process.get_uint64();
        else if (process.tag() == 2)
          AddSample(process.get_message());
        else
          process.skip();
      }
    }
  }

  void AddSample(protozero::pbf_reader message) {
    std::map<uint32_t, uint64_t> fields;
    while (message.next()) fields[message.tag()] = message.get_uint64();
    samples.push_back(fields);
  }

  // The outermost function first.
  std::vector<std::string> Path(size_t sample) {
    std::vector<std::string> names;
    for (const uint64_t frame : callstacks.at(samples.at(sample).at(1)))
      names.push_back(functions.at(frames.at(frame).at(2)[0]));
    return names;
  }

  uint64_t pid = 0;
  std::map<uint64_t, std::string> functions, sources;
  std::map<uint64_t, std::map<uint32_t, std::vector<uint64_t>>> frames;
  std::map<uint64_t, std::vector<uint64_t>> callstacks;
  std::vector<std::map<uint32_t, uint64_t>> samples;
};

std::vector<profile::SourceFrame> Names(uint64_t address) {
  if (address == 0xf) return {{.function = "inner", .file = "a.c", .line = 7}, {.function = "outer"}};
  return {{.function = "main"}};
}

TEST(PerfettoTest, NamesAndFigures) {
  const profile::Profile profile = {
      .contexts = {{.frames = {0x10, 0x20}, .threads = {{.live = {2, 20, 2, 20}, .allocated = {5, 50, 5, 50}}}},
                   {.frames = {0x20}, .threads = {{.live = {1, 8, 1, 8}}}},
                   {.threads = {{.live = {1, 4, 1, 4}, .allocated = {1, 4, 1, 4}}}}}};
  const NamedProfile named(profile, Names);
  Trace trace(Perfetto(named, named.paths(), {.name = "x"}, 42));
  EXPECT_EQ(trace.pid, 42u);
  ASSERT_EQ(trace.samples.size(), 3u);
  EXPECT_THAT(trace.Path(0), ElementsAre("main", "outer", "inner"));
  EXPECT_THAT(trace.Path(1), ElementsAre("main"));
  EXPECT_THAT(trace.Path(2), ElementsAre(NameOfUnknown()));
  EXPECT_EQ(trace.samples[0][2], 50u);
  EXPECT_EQ(trace.samples[0][3], 30u);
  EXPECT_EQ(trace.samples[0][5], 5u);
  EXPECT_EQ(trace.samples[0][6], 3u);
  EXPECT_EQ(trace.samples[1][2], 8u) << "live ones were allocated";
  EXPECT_EQ(trace.samples[1][3], 0u);
  EXPECT_EQ(trace.sources.size(), 1u);
}

TEST(PerfettoTest, Nothing) {
  const NamedProfile named({}, Names);
  EXPECT_TRUE(Trace(Perfetto(named, named.paths(), {}, 0)).samples.empty());
}

}  // namespace
}  // namespace heaptap::report
