// SPDX-License-Identifier: Apache-2.0
//
// Tests real clients with a real server, on a profile of this program.
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/http_client.h"
#include "tests/unit/reader.h"
#include "userspace/elf/mappings.h"
#include "userspace/formats/heap_v2.h"
#include "userspace/process/handle.h"
#include "userspace/process/maps.h"

namespace heaptap::api {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// The functions on the call path of the profile.
__attribute__((noinline)) uint64_t LeakingFunction(uint64_t& caller) {
  caller = reinterpret_cast<uint64_t>(__builtin_return_address(0));
  return reinterpret_cast<uint64_t>(&LeakingFunction) + 2;
}
__attribute__((noinline)) std::vector<uint64_t> CallerOfLeakingFunction() {
  uint64_t caller = 0;
  const uint64_t place = LeakingFunction(caller);
  return {place, caller};
}

class HttpClientsTest : public ServerTest {
 protected:
  void SetUp() override {
    const absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
    ASSERT_TRUE(mappings.ok());
    AddProcess(collector_, getpid(), 0, "weird \"\\name\n", 4096, CallerOfLeakingFunction(), *mappings,
               process::OwnExecutable());
    Start();
    url_ = absl::StrCat("http://127.0.0.1:", server_->port());
    process_url_ = absl::StrCat(url_, "/pid/", getpid());
  }

  std::string Jeprof(const std::string& arguments) {
    const Output output = reader_.Run(absl::StrCat("JEPROF_TMPDIR=. PPROF_TMPDIR=. ", arguments));
    EXPECT_EQ(output.status, 0) << output.err;
    return output.out;
  }
  std::string GoPprof(const std::string& arguments) {
    const Output output = reader_.Run(absl::StrCat("PPROF_TMPDIR=. /usr/bin/go tool pprof ", arguments));
    EXPECT_EQ(output.status, 0) << output.err;
    return output.out;
  }

  Reader reader_;
  std::string url_;
  std::string process_url_;
};

TEST_F(HttpClientsTest, Jeprof) {
  for (const char* page : {"/pprof/heap", "/pprof/growth"}) {
    const std::string text = Jeprof(absl::StrCat("jeprof --text --show_bytes ", process_url_, page));
    EXPECT_THAT(text, ContainsRegex("[0-9]+ 100.0% .* [0-9]+ 100.0% .*LeakingFunction")) << text;
    EXPECT_THAT(text, ContainsRegex(" 0 +0.0% .*CallerOfLeakingFunction")) << text;
  }
  EXPECT_THAT(Jeprof(absl::StrCat("jeprof --text ", url_, "/pprof/heap")), HasSubstr("LeakingFunction"))
      << "there is only one process";
}

TEST_F(HttpClientsTest, JeprofReadsSymbolizedProfiles) {
  reader_.Write("profile", Get(absl::StrCat("/pid/", getpid(), "/jeprof")).body);
  EXPECT_THAT(Jeprof("jeprof --text profile"), HasSubstr("LeakingFunction"));
}

TEST_F(HttpClientsTest, GooglePprof) {
  EXPECT_THAT(Jeprof(absl::StrCat("google-pprof --text ", process_url_, "/pprof/growth")),
              HasSubstr("LeakingFunction"));
}

TEST_F(HttpClientsTest, GoPprof) {
  const std::string heap = GoPprof(absl::StrCat("-top ", process_url_, "/debug/pprof/heap"));
  EXPECT_THAT(heap, HasSubstr("Type: inuse_space"));
  EXPECT_THAT(heap, HasSubstr("Build ID: "));
  EXPECT_THAT(heap, ContainsRegex("4kB +100% .*LeakingFunction")) << heap;
  const std::string allocs = GoPprof(absl::StrCat("-top ", process_url_, "/debug/pprof/allocs"));
  EXPECT_THAT(allocs, HasSubstr("Type: alloc_space"));
  EXPECT_THAT(allocs, ContainsRegex("8kB +100% .*LeakingFunction")) << allocs;
  EXPECT_THAT(GoPprof(absl::StrCat("-top ", url_, "/debug/pprof/heap")), HasSubstr("LeakingFunction"));
  // Without names in the profile it asks for them.
  const std::string growth = GoPprof(absl::StrCat("-symbolize=remote -top ", process_url_, "/pprof/growth"));
  EXPECT_THAT(growth, ContainsRegex("4kB +100% .*LeakingFunction")) << growth;
  const std::string text =
      GoPprof(absl::StrCat("-symbolize=remote -top '", process_url_, "/debug/pprof/heap?debug=1'"));
  EXPECT_THAT(text, HasSubstr("LeakingFunction"));
}

TEST_F(HttpClientsTest, GoPprofOfAWindow) {
  const std::string text = GoPprof(absl::StrCat("-seconds 1 -top ", process_url_, "/debug/pprof/heap"));
  EXPECT_THAT(text, HasSubstr("Showing nodes accounting for 0, 0% of 0 total"));
}

TEST_F(HttpClientsTest, GoPprofShowsErrors) {
  const Output output =
      reader_.Run(absl::StrCat("PPROF_TMPDIR=. /usr/bin/go tool pprof -top ", url_, "/pid/1/debug/pprof/heap"));
  EXPECT_NE(output.status, 0);
  EXPECT_THAT(output.err, HasSubstr("404 Not Found - process 1 is not recorded"));
}

TEST_F(HttpClientsTest, Curl) {
  const Output output = reader_.Run(absl::StrCat("curl -s --compressed --unix-socket ", options_.socket_path,
                                                 " 'http://localhost/mtev/heap_profile?trigger_dump=true'"));
  EXPECT_EQ(output.status, 0) << output.err;
  EXPECT_EQ(output.out, formats::HeapV2(collector_.snapshots[getpid()].profile));
  // For a body of this size curl waits for "100 Continue".
  reader_.Write("addresses", std::string(2 << 20, '+'));
  const Output posted =
      reader_.Run(absl::StrCat("curl -s -w '%{http_code}' -d @addresses ", process_url_, "/pprof/symbol"));
  EXPECT_EQ(posted.out, "200");
}

TEST_F(HttpClientsTest, Promtool) {
  const Output output = reader_.Run(absl::StrCat("curl -s ", url_, "/metrics | promtool check metrics"));
  EXPECT_EQ(output.status, 0);
  EXPECT_EQ(output.out, "");
  EXPECT_EQ(output.err, "");
}

}  // namespace
}  // namespace heaptap::api
