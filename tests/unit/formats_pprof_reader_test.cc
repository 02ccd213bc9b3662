// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protozero/pbf_writer.hpp"
#include "tests/unit/large_profile.h"
#include "userspace/formats/gzip.h"
#include "userspace/formats/heap_v2_reader.h"
#include "userspace/formats/pprof.h"
#include "userspace/formats/pprof_reader.h"
#include "userspace/profile/difference.h"

namespace heaptap::formats {
namespace {

using profile::Profile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Writes a profile as other programs do: fields by their numbers, texts at the end.
class Foreign {
 public:
  Foreign() { Text(""); }

  uint64_t Text(const std::string& text) {
    texts_.push_back(text);
    return texts_.size() - 1;
  }
  Foreign& Type(const std::string& type, const std::string& unit) {
    protozero::pbf_writer message(out_, 1);
    message.add_uint64(1, Text(type));
    message.add_uint64(2, Text(unit));
    return *this;
  }
  Foreign& Function(uint64_t id, const std::string& name, const std::string& file = "") {
    protozero::pbf_writer message(out_, 5);
    message.add_uint64(1, id);
    message.add_uint64(2, Text(name));
    message.add_uint64(4, Text(file));
    return *this;
  }
  // Lines: of these functions, innermost first.
  Foreign& Location(uint64_t id, uint64_t address, const std::vector<uint64_t>& functions) {
    protozero::pbf_writer message(out_, 4);
    message.add_uint64(1, id);
    message.add_uint64(3, address);
    for (const uint64_t function : functions) {
      protozero::pbf_writer line(message, 4);
      line.add_uint64(1, function);
      line.add_uint64(2, 10 + function);
    }
    return *this;
  }
  // Not packed, which is allowed too.
  Foreign& Sample(const std::vector<uint64_t>& locations, const std::vector<int64_t>& values) {
    protozero::pbf_writer message(out_, 2);
    for (const uint64_t location : locations) message.add_uint64(1, location);
    for (const int64_t value : values) message.add_int64(2, value);
    return *this;
  }
  Foreign& Period(int64_t period) {
    {
      protozero::pbf_writer message(out_, 11);
      message.add_uint64(1, Text("space"));
      message.add_uint64(2, Text("bytes"));
    }
    out_.add_int64(12, period);
    return *this;
  }
  std::string Bytes() {
    for (const std::string& text : texts_) out_.add_string(6, text);
    return data_;
  }

 private:
  std::string data_;
  protozero::pbf_writer out_{data_};
  std::vector<std::string> texts_;
};

PprofContent MustRead(const std::string& bytes) {
  EXPECT_TRUE(IsPprof(bytes));
  absl::StatusOr<PprofContent> content = ReadPprof(bytes, "file");
  EXPECT_TRUE(content.ok()) << content.status();
  return content.ok() ? *std::move(content) : PprofContent();
}

std::string ErrorOf(const std::string& bytes) {
  const absl::Status status = ReadPprof(bytes, "file").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

std::string Unpacked(const std::string& bytes) {
  EXPECT_TRUE(IsGzip(bytes));
  absl::StatusOr<std::string> unpacked = Gunzip(bytes, 1 << 30);
  EXPECT_TRUE(unpacked.ok()) << unpacked.status();
  return unpacked.ok() ? *std::move(unpacked) : "";
}

std::vector<std::string> Functions(const PprofContent& content, size_t context) {
  std::vector<std::string> names;
  for (const uint64_t frame : content.profile.contexts.at(context).frames) {
    const auto found = content.symbols.find(profile::CallAddress(frame));
    if (found == content.symbols.end()) {
      names.push_back(absl::StrCat("0x", absl::Hex(profile::CallAddress(frame))));
      continue;
    }
    for (const profile::SourceFrame& one : found->second) {
      names.push_back(absl::StrCat(one.function, " ", one.file, ":", one.line));
    }
  }
  return names;
}

TEST(PprofReaderTest, WhatWeWrite) {
  Profile profile = {.period = 4096};
  profile.mappings = {{.start = 0x5000, .end = 0x6000, .file_offset = 0x100, .path = "/lib/libx.so"},
                      {.start = 0x8000, .end = 0x9000, .path = "/bin/program", .build_id = "\xab\x01\xff"}};
  profile.thread_names = {{7, "main"}};
  profile.warnings = {"4 samples lost"};
  // 1000 samples of 4096 bytes, each of which stands for 1 / (1 - 1/e) objects.
  const double objects = 1000 / 0.6321205588285577;
  profile.contexts = {
      {.frames = {0x8001, 0x5001},
       .threads = {{7, {1000, 4096000, objects, objects * 4096}, {1000, 4096000, objects, objects * 4096}},
                   {9, {}, {1, 4096, 1.6, 6480}}}},
      {.frames = {}, .threads = {{7, {1, 8, 512, 4098}, {1, 8, 512, 4098}}}}};
  const PprofContent content = MustRead(
      Unpacked(Pprof(profile, {.find_source_frames = [](uint64_t address) -> std::vector<profile::SourceFrame> {
                       if (address != 0x8000) return {};
                       return {{.function = "inlined", .file = "a.h", .line = 7},
                               {.function = "f(int)", .linkage_name = "_Z1fi", .file = "a.cc", .line = 8}};
                     }})));
  const Profile& read = content.profile;
  EXPECT_EQ(read.period, 4096u);
  EXPECT_EQ(read.mappings, profile.mappings);
  EXPECT_EQ(read.thread_names, profile.thread_names);
  EXPECT_EQ(read.warnings, profile.warnings);
  ASSERT_THAT(read.contexts, SizeIs(2));
  EXPECT_EQ(read.contexts[0].frames, profile.contexts[0].frames);
  EXPECT_THAT(read.contexts[1].frames, IsEmpty());
  ASSERT_THAT(read.contexts[0].threads, SizeIs(2));
  const profile::ThreadShare& share = read.contexts[0].threads[0];
  EXPECT_EQ(share.tid, 7u);
  EXPECT_EQ(share.live.samples, 1000u);
  EXPECT_NEAR(static_cast<double>(share.live.sampled_bytes), 4096000, 4096);
  EXPECT_NEAR(share.live.bytes, objects * 4096, 1);
  EXPECT_EQ(read.contexts[0].threads[1].tid, 9u);
  EXPECT_EQ(read.contexts[0].threads[1].allocated.samples, 1u);
  EXPECT_THAT(Functions(content, 0), ElementsAre("inlined a.h:7", "f(int) a.cc:8", "0x5000"));
  EXPECT_EQ(content.symbols.at(0x8000)[1].linkage_name, "_Z1fi");
}

// Go writes build ids of another form, and old linkers wrote none.
TEST(PprofReaderTest, BuildIdsThatAreNotHexadecimal) {
  const auto build_id = [](const std::string& text) {
    Profile profile = {.contexts = {{.frames = {0x8001}, .threads = {{7, {1, 8, 1, 8}, {1, 8, 1, 8}}}}}};
    profile.mappings = {{.start = 0x8000, .end = 0x9000, .path = "/bin/program", .build_id = "\xab\x01"}};
    return MustRead(absl::StrReplaceAll(Unpacked(Pprof(profile, {})), {{"ab01", text}}))
        .profile.mappings.at(0)
        .build_id;
  };
  EXPECT_EQ(build_id("Ab01"), "\xab\x01");
  for (const char* text : {"ab0g", "-b01", "0x01", "ab 1"}) EXPECT_EQ(build_id(text), "") << text;
}

TEST(PprofReaderTest, BlocksBySizeAndAge) {
  Profile profile = {.pid = 1, .period = 1};
  profile.contexts = {{.frames = {0x401000},
                       .threads = {{.tid = 5, .live = {3, 192, 3, 192}, .allocated = {9, 900, 9, 900}}},
                       .blocks = {{.tid = 5, .size = 32, .age = 3600, .live = {2, 64, 2, 64}},
                                  {.tid = 5, .size = 128, .age = 0, .live = {1, 128, 1, 128}}}}};
  profile.thread_names = {{5, "worker"}};
  const PprofContent content = MustRead(Unpacked(Pprof(profile, {.blocks = true})));
  ASSERT_THAT(content.profile.contexts, SizeIs(1));
  EXPECT_EQ(content.profile.contexts[0].blocks, profile.contexts[0].blocks);
  EXPECT_EQ(content.profile.Live(), profile.Live());
  EXPECT_EQ(content.profile.Allocated(), profile.Allocated());
  EXPECT_EQ(content.profile.thread_names, profile.thread_names);
  // Only who asks gets them: samples are matched by their labels.
  EXPECT_FALSE(MustRead(Unpacked(Pprof(profile, {}))).profile.HasBlocks());
}

TEST(PprofReaderTest, DifferencesKeepTheirSigns) {
  const Profile before = {.contexts = {{.frames = {0x8001}, .threads = {{1, {9, 900, 9, 900}, {9, 900, 9, 900}}}}}};
  const Profile after = {.contexts = {{.frames = {0x8001}, .threads = {{1, {3, 300, 3, 300}, {12, 1200, 12, 1200}}}}}};
  const PprofContent content = MustRead(Unpacked(Pprof(profile::Difference(after, before), {})));
  ASSERT_THAT(content.profile.contexts, SizeIs(1));
  EXPECT_EQ(content.profile.contexts[0].Live().bytes, -600);
  EXPECT_EQ(content.profile.contexts[0].Live().samples, 0u);
  EXPECT_EQ(content.profile.contexts[0].Allocated().bytes, 300);
}

// Such profiles of other programs have names only.
TEST(PprofReaderTest, PlacesWithoutAddressesAreToldApart) {
  const auto bytes = [](uint64_t first) {
    Foreign foreign;
    foreign.Type("inuse_space", "bytes").Period(1);
    foreign.Function(first, "f", "x.py").Function(first + 1, "g", "x.py").Function(first + 2, "h");
    foreign.Location(1, 0, {first}).Location(2, 0, {first + 1}).Location(3, 0, {first}).Location(4, 0x10, {first});
    // One address with two functions.
    foreign.Location(5, 0x10, {first + 2});
    return foreign.Sample({1, 2}, {100}).Sample({3, 2}, {10}).Sample({4}, {1}).Sample({5}, {2}).Bytes();
  };
  const PprofContent content = MustRead(bytes(1));
  ASSERT_THAT(content.profile.contexts, SizeIs(3));
  EXPECT_EQ(content.profile.contexts[0].Live().bytes, 110);
  EXPECT_THAT(Functions(content, 0), ElementsAre("f x.py:11", "g x.py:12"));
  EXPECT_THAT(Functions(content, 1), ElementsAre("f x.py:11"));
  EXPECT_THAT(Functions(content, 2), ElementsAre("h :13"));
  EXPECT_EQ(content.profile.contexts[1].frames, std::vector<uint64_t>{0x11});
  // Equal names have equal addresses in another profile.
  EXPECT_THAT(profile::Difference(MustRead(bytes(1)).profile, content.profile).contexts, IsEmpty());
}

TEST(PprofReaderTest, ValuesAreFoundByTheirNames) {
  Foreign foreign;
  foreign.Type("alloc_space", "bytes").Type("other", "seconds").Type("inuse_objects", "count");
  foreign.Type("inuse_space", "bytes").Period(524288).Location(1, 0x1000, {});
  const PprofContent content = MustRead(foreign.Sample({1}, {300, 7, 2, 200}).Sample({1}, {0, 7, 0, 0}).Bytes());
  ASSERT_THAT(content.profile.contexts, SizeIs(1));
  const profile::Context& context = content.profile.contexts[0];
  EXPECT_EQ(context.Live(), (profile::Estimate{1, 0, 2, 200, 200 * 200}));
  EXPECT_EQ(context.Allocated(), (profile::Estimate{1, 300, 0, 300}));
  EXPECT_TRUE(content.profile.has_allocated);
  EXPECT_EQ(content.profile.period, 524288u);
  // As Go writes it: the period comes first.
  MustRead(Foreign().Period(1).Type("alloc_space", "bytes").Bytes());
  EXPECT_THAT(content.profile.warnings, IsEmpty());
  const PprofContent unknown_period = MustRead(Foreign().Type("space", "bytes").Bytes());
  EXPECT_FALSE(unknown_period.profile.has_allocated);
  EXPECT_THAT(unknown_period.profile.warnings, ElementsAre(HasSubstr("how often samples were taken")));
}

TEST(PprofReaderTest, RefusesWhatIsNoHeapProfile) {
  EXPECT_THAT(
      ErrorOf(Foreign().Type("samples", "count").Type("c\npu", "nanoseconds").Bytes()),
      HasSubstr("file: no heap profile: expected values of inuse_space or alloc_space, found samples, c\\012pu"));
  EXPECT_THAT(ErrorOf(Foreign().Type("inuse_space", "kilobytes").Bytes()), HasSubstr("inuse_space in kilobytes"));
  for (const char* text : {"", "\n", "heap_v2/1\n", "\n\nheap profile:", "--- symbol\n", "\x1f\x8b\x08",
                           "package main\n", "%warn x\nheap_v2/1\n", "\n\n\n",
                           "\x7f"
                           "ELF"}) {
    EXPECT_FALSE(IsPprof(text)) << text;
  }
}

TEST(PprofReaderTest, RefusesWhatIsDamaged) {
  const auto good = [] {
    Foreign foreign;
    foreign.Type("inuse_space", "bytes").Period(1).Function(1, "f").Location(1, 0x1000, {1});
    return foreign;
  };
  EXPECT_THAT(ErrorOf(good().Sample({2}, {1}).Bytes()), HasSubstr("there is no location 2"));
  EXPECT_THAT(ErrorOf(good().Sample({1}, {1, 2}).Bytes()), HasSubstr("too many or too few values"));
  EXPECT_THAT(ErrorOf(good().Sample({1}, {}).Bytes()), HasSubstr("too many or too few values"));
  EXPECT_THAT(ErrorOf(good().Location(2, 0, {5}).Bytes()), HasSubstr("there is no function 5"));
  EXPECT_THAT(ErrorOf(good().Location(1, 0, {}).Bytes()), HasSubstr("location 1 comes twice"));
  EXPECT_THAT(ErrorOf(good().Function(1, "g").Bytes()), HasSubstr("function 1 comes twice"));
  EXPECT_THAT(ErrorOf(good().Sample(std::vector<uint64_t>(kMaxReadFrames + 1, 1), {1}).Bytes()),
              HasSubstr("a list with more than 1024 entries"));
  EXPECT_THAT(
      ErrorOf(good().Location(2, 0, std::vector<uint64_t>(64, 1)).Sample(std::vector<uint64_t>(65, 2), {1}).Bytes()),
      HasSubstr("more than 4096 functions"));
  // Without the table of texts, and cut anywhere.
  const std::string whole = good().Sample({1}, {1}).Bytes();
  for (size_t size = 0; size < whole.size(); size++) {
    const absl::StatusOr<PprofContent> content = ReadPprof(whole.substr(0, size), "file");
    EXPECT_TRUE(content.ok() || absl::IsInvalidArgument(content.status())) << size;
  }
  EXPECT_THAT(ErrorOf(whole.substr(0, whole.size() - 1)), HasSubstr("file: not a pprof profile: "));
}

TEST(PprofReaderTest, CompressedFiles) {
  const std::string packed = Gzip(std::string(100000, 'x'));
  EXPECT_EQ(Unpacked(packed), std::string(100000, 'x'));
  EXPECT_THAT(Gunzip(packed, 99999).status().message(), HasSubstr("more than 99999 bytes"));
  EXPECT_THAT(Gunzip(packed.substr(0, packed.size() - 3), 1 << 20).status().message(), HasSubstr("cut off"));
  EXPECT_THAT(Gunzip(packed + "x", 1 << 20).status().message(), HasSubstr("damaged"));
  EXPECT_THAT(Gunzip("\x1f\x8b none", 1 << 20).status().message(), HasSubstr("damaged"));
}

TEST(PprofReaderTest, OfLargeProfiles) {
  std::vector<std::string> files;
  for (size_t which = 0; which < 2; which++) files.push_back(Unpacked(Pprof(LargeProfiles()[which], {})));
  ExpectLinear([&](size_t which) { MustRead(files.at(which)); });
}

}  // namespace
}  // namespace heaptap::formats
