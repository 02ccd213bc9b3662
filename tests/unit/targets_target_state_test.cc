// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/answered.h"
#include "tests/unit/support/folder.h"
#include "userspace/targets/target_state.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::string AllBytes() {
  std::string bytes;
  for (int byte = 0; byte < 256; byte++) bytes.push_back(static_cast<char>(byte));
  // Before digits that must not become part of an escape.
  return absl::StrCat(bytes, std::string("\xff"
                                         "f\x01"
                                         "1\0"
                                         "0\\x41\"\n",
                                         12));
}

TargetState Example() {
  TargetState state;
  state.target = {
      .process_id = 0xffff'ffff'ffff'fffe,
      .pid = 4194303,
      .name = AllBytes(),
      .image = Image{.has_started = true,
                     .control_address = 0x7fff'ffff'f000,
                     .allocator = {0x7f00'0000'1000, 0x7f00'0002'0000},
                     .lg_sample = 19,
                     .max_frames = 7,
                     .raw = true},
      .control = Control{.asked_lg_sample = 14},
      .books = BookFigures{.since = absl::FromUnixNanos(1'234'567'890'123'456'789)},
      .requested = Requested{.own_final = true},
      .facts = KnownFacts{
          .user = 1000, .service = "a service", .control_group = AllBytes(), .control_groups = {"/", AllBytes()}}};
  state.space.executable = "/a program";
  state.space.mappings.Add({.start = 0x1000,
                            .end = 0x3000,
                            .file_offset = 0x5000,
                            .device_major = 8,
                            .device_minor = 0xfffff,
                            .inode = 0xffff'ffff'ffff'ffff,
                            .path = AllBytes(),
                            .deleted = true});
  state.space.mappings.Add({.start = 0x7fff'0000'0000, .end = 0x7fff'0000'2000, .path = "[vdso]"});
  state.space.mappings.Add({.start = 0x2000, .end = 0x3000, .inode = 9, .path = "/b"},
                           {.since = 1'000'000, .time = 1'000'000});
  state.space.mappings.Add({.start = 0x1000, .end = 0x3000, .inode = 10, .path = "/c"},
                           {.since = 2'000'000, .time = 2'000'000});
  state.space.mappings.AddForgotten({.begin = 3, .end = 4, .since = 1, .until = 2});
  return state;
}

// The former mappings, with where and until when they were, and all mappings.
std::vector<std::tuple<elf::Mapping, uint64_t, uint64_t>> All(const elf::Mappings& mappings) {
  std::vector<std::tuple<elf::Mapping, uint64_t, uint64_t>> all;
  for (const elf::FormerMapping& one : mappings.former()) all.emplace_back(*one.mapping, one.start, one.until);
  for (const elf::Mapping& one : mappings.All()) all.emplace_back(one, 0, 0);
  for (const elf::ForgottenRange& one : mappings.forgotten()) {
    all.emplace_back(elf::Mapping{.start = one.begin, .end = one.end}, one.since, one.until);
  }
  return all;
}

void ExpectSame(const TargetState& read, const TargetState& written) {
  EXPECT_EQ(read.target.process_id, written.target.process_id);
  EXPECT_EQ(read.target.pid, written.target.pid);
  EXPECT_EQ(read.target.name, written.target.name);
  EXPECT_EQ(read.target.books->since, written.target.books->since);
  EXPECT_EQ(read.target.image->has_started, written.target.image->has_started);
  EXPECT_EQ(read.target.requested->own_final, written.target.requested->own_final);
  EXPECT_EQ(read.target.image->control_address, written.target.image->control_address);
  EXPECT_EQ(read.target.image->allocator.begin, written.target.image->allocator.begin);
  EXPECT_EQ(read.target.image->allocator.end, written.target.image->allocator.end);
  EXPECT_EQ(read.target.image->lg_sample, written.target.image->lg_sample);
  EXPECT_EQ(read.target.control->asked_lg_sample, written.target.control->asked_lg_sample);
  EXPECT_EQ(read.target.image->max_frames, written.target.image->max_frames);
  EXPECT_EQ(read.target.image->raw, written.target.image->raw);
  EXPECT_EQ(read.target.facts->user, written.target.facts->user);
  EXPECT_EQ(read.target.facts->service, written.target.facts->service);
  EXPECT_EQ(read.target.facts->control_group, written.target.facts->control_group);
  EXPECT_EQ(read.target.facts->control_groups, written.target.facts->control_groups);
  EXPECT_EQ(read.space.executable, written.space.executable);
  EXPECT_EQ(All(read.space.mappings), All(written.space.mappings));
}

TEST(TargetState, IsReadAsItWasWritten) {
  const TargetState state = Example();
  absl::StatusOr<TargetState> read = ParseTargetState(WriteTargetState(state.target, state.space));
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectSame(*read, state);
  // And of an empty state.
  absl::StatusOr<TargetState> nothing = ParseTargetState(WriteTargetState({}, {}));
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  ExpectSame(*nothing, {});
}

TEST(TargetState, EveryFieldIsNeededAndOfItsKind) {
  const TargetState state = Example();
  const nlohmann::json whole = nlohmann::json::parse(WriteTargetState(state.target, state.space));
  for (const auto& [name, value] : whole.items()) {
    SCOPED_TRACE(name);
    nlohmann::json without = whole;
    without.erase(name);
    // What an older heaptap has saved has no rate that was asked for, no former mappings, no time and no facts.
    EXPECT_EQ(ParseTargetState(without.dump()).ok(), name == "asked_lg_sample" || name == "former" ||
                                                         name == "forgotten" || name == "saved" || name == "facts");
    nlohmann::json other = whole;
    other[name] = value.is_object() || value.is_array() ? nlohmann::json("text") : nlohmann::json::array();
    EXPECT_TRUE(absl::IsInvalidArgument(ParseTargetState(other.dump()).status()));
  }
  nlohmann::json mapping = whole;
  mapping["mappings"][0] = {1, 2};
  EXPECT_TRUE(absl::IsInvalidArgument(ParseTargetState(mapping.dump()).status()));
}

TEST(TargetState, HostileTextsAreRefusedOrHarmless) {
  for (const char* text :
       {"", "null", "[]", "{", "{}", "17", "\"\"", "\xff", "{\"process_id\":1}", "{\"process_id\":{}}"}) {
    SCOPED_TRACE(text);
    EXPECT_TRUE(absl::IsInvalidArgument(ParseTargetState(text).status()));
  }
  EXPECT_FALSE(ParseTargetState(std::string(1 << 20, '[')).ok());

  const TargetState state = Example();
  const nlohmann::json whole = nlohmann::json::parse(WriteTargetState(state.target, state.space));
  // A rate out of range, invalid mappings, invalid escapes.
  nlohmann::json strange = whole;
  strange["own_lg_sample"] = 4000000000u;
  strange["asked_lg_sample"] = 4000000000u;
  strange["name"] = "\\q";
  strange["mappings"] = {{0x2000, 0x1000, 0, 0, 0, 1, "/backwards", false},
                         {0x3000, 0x3000, 0, 0, 0, 1, "/empty", false}};
  absl::StatusOr<TargetState> read = ParseTargetState(strange.dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_LE(read->target.image->lg_sample, HEAPTAP_MAX_LG_SAMPLE);
  EXPECT_LE(read->target.control->asked_lg_sample, HEAPTAP_MAX_LG_SAMPLE);
  EXPECT_EQ(read->target.name, "");
  EXPECT_TRUE(read->space.mappings.empty());
  // Every prefix.
  const std::string text = whole.dump();
  for (size_t size = 0; size < text.size(); size += 7) EXPECT_FALSE(ParseTargetState(text.substr(0, size)).ok());
}

class TargetStatesTest : public testing::Test {
 protected:
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) names.push_back(entry.path().filename());
    return names;
  }
  TargetStates Open(absl::string_view layout, bool adopted) {
    absl::StatusOr<TargetStates> states = TargetStates::Open(folder_, layout, adopted, files_);
    EXPECT_TRUE(states.ok()) << states.status();
    return *std::move(states);
  }
  static TargetState Of(uint64_t process_id) {
    TargetState state = Example();
    state.target.process_id = process_id;
    return state;
  }
  static void Save(TargetStates&& states, uint64_t process_id) { Save(states, process_id); }
  static void Save(TargetStates& states, uint64_t process_id) {
    const TargetState state = Of(process_id);
    EXPECT_TRUE(Answered<absl::Status>([&](auto done) { states.Save(state.target, state.space, done); }).ok());
  }

  TemporaryFolder base_;
  std::string folder_ = base_ / "states";
  base::Background files_{base::Background::Place::kCaller};
};

TEST_F(TargetStatesTest, SavesLoadsAndRemoves) {
  TargetStates states = Open("layout1", false);
  EXPECT_TRUE(absl::IsNotFound(states.Load(7).status()));
  Save(states, 7);
  Save(states, 7);  // in the place of the first
  Save(states, 8);
  absl::StatusOr<TargetState> read = states.Load(7);
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectSame(*read, Of(7));
  EXPECT_THAT(Files(), UnorderedElementsAre("layout", "7.json", "8.json"));
  struct stat status;
  ASSERT_EQ(stat((folder_ + "/7.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  states.Remove(7);
  states.Remove(7);
  EXPECT_TRUE(absl::IsNotFound(states.Load(7).status()));
  EXPECT_TRUE(states.Load(8).ok());
  states.RemoveAll();
  EXPECT_THAT(Files(), UnorderedElementsAre("layout"));
}

TEST_F(TargetStatesTest, WhatTookOverReadsWhatWasLeft) {
  Save(Open("layout1", false), 7);
  EXPECT_TRUE(Open("layout1", true).Load(7).ok());
  EXPECT_TRUE(Open("layout1", true).Load(7).ok()) << "and the one after it";
}

// Process ids begin anew with new books.
TEST_F(TargetStatesTest, OfOtherBooksNothingIsKept) {
  Save(Open("layout1", false), 7);
  EXPECT_TRUE(absl::IsNotFound(Open("layout1", false).Load(7).status())) << "the same layout, but new books";
  Save(Open("layout1", false), 7);
  EXPECT_TRUE(absl::IsNotFound(Open("layout2", true).Load(7).status())) << "of another layout";
  EXPECT_THAT(Files(), ElementsAre("layout"));
}

TEST_F(TargetStatesTest, WhatAnotherLayoutLeftCanBeRead) {
  Save(Open("layout1", false), 7);
  EXPECT_TRUE(TargetStates::OfOther(folder_, "layout1").Load(7).ok());
  EXPECT_TRUE(absl::IsNotFound(TargetStates::OfOther(folder_, "layout2").Load(7).status()));
  EXPECT_TRUE(absl::IsNotFound(TargetStates::OfOther(base_ / "none", "layout1").Load(7).status()));
}

TEST_F(TargetStatesTest, OtherFilesStay) {
  std::filesystem::create_directory(folder_);
  std::ofstream(folder_ + "/notes.txt") << "mine";
  Open("layout1", false);
  EXPECT_THAT(Files(), UnorderedElementsAre("layout", "notes.txt"));
}

TEST_F(TargetStatesTest, ASpoiledFileIsAnError) {
  Open("layout1", false);
  std::ofstream(folder_ + "/7.json") << "{\"process_id\": 7";
  const TargetStates states = Open("layout1", true);
  EXPECT_TRUE(absl::IsInvalidArgument(states.Load(7).status()));
}

TEST_F(TargetStatesTest, LinksLeadNowhere) {
  TargetStates states = Open("layout1", false);
  const std::string victim = base_ / "victim";
  std::ofstream(victim) << "as it was";
  std::filesystem::create_symlink(victim, folder_ + "/7.json");
  Save(states, 7);  // takes the link's place
  EXPECT_FALSE(std::filesystem::is_symlink(folder_ + "/7.json"));
  std::filesystem::create_symlink(victim, folder_ + "/8.json.new");
  EXPECT_FALSE(Answered<absl::Status>([&](auto done) { states.Save(Of(8).target, Of(8).space, done); }).ok());
  EXPECT_EQ(std::filesystem::file_size(victim), 9u);
}

TEST_F(TargetStatesTest, WhereNoFolderCanBeMadeIsSaid) {
  std::ofstream(base_ / "file") << "";
  EXPECT_FALSE(TargetStates::Open(base_ / "file", "layout1", false, files_).ok());
  const absl::Status status = TargetStates::Open(base_ / "none/states", "layout1", false, files_).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(base_ / "none/states"));
}

}  // namespace
}  // namespace heaptap::recording
