// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/formats/heap_v2.h"
#include "userspace/formats/offered.h"

namespace heaptap::formats {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

profile::Snapshot OneContext() {
  profile::Snapshot snapshot;
  snapshot.profile.pid = 7;
  snapshot.profile.contexts = {{.frames = {0x1001}, .threads = {{.tid = 1, .live = {.objects = 1, .bytes = 10}}}}};
  snapshot.executable = "/bin/program";
  return snapshot;
}

std::vector<profile::SourceFrame> Names(uint64_t) { return {{.function = "keep"}}; }

TEST(OfferedFormats, EachWritesTheProfileAndThoseThatHaveNamesWriteThem) {
  for (const OfferedFormat& format : OfferedFormats()) {
    const std::string text = format.write(OneContext(), Names).value();
    EXPECT_FALSE(text.empty()) << format.name;
    const bool is_compressed = std::string(format.content_type) == "application/octet-stream";
    if (!is_compressed) EXPECT_EQ(text.find("keep") != std::string::npos, format.has_names) << format.name;
    EXPECT_EQ(FindOffered(format.name), &format);
  }
}

TEST(OfferedFormats, TheDefaultIsJemallocs) {
  EXPECT_EQ(OfferedFormats().front().write(OneContext(), {}).value(), HeapV2(OneContext().profile));
  EXPECT_THAT(OfferedFormats().front().write(OneContext(), {}).value(), StartsWith("heap_v2/"));
}

TEST(OfferedFormats, OthersAreNone) {
  EXPECT_EQ(FindOffered(""), nullptr);
  EXPECT_EQ(FindOffered("heap"), nullptr);
  EXPECT_THAT(OfferedNames(), HasSubstr("heap_v2, gperftools, "));
  EXPECT_THAT(OfferedNames(), HasSubstr(" or jeprof"));
}

}  // namespace
}  // namespace heaptap::formats
