// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/cli/words/configuration_file.h"

namespace heaptap::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConfigurationFileTest : public ::testing::Test {
 protected:
  ConfigurationFileTest() : command_(line_.AddCommand("daemon", "")) {
    std::string pattern = absl::StrCat(::testing::TempDir(), "/configuration.XXXXXX");
    root_ = mkdtemp(pattern.data());
    command_.Add("--rule", rules_, "");
    command_.Add("--listen", listen_, "");
    const Option rate = command_.Add("--lg-sample", lg_sample_, "").Range(0, 63);
    command_.AddFlag("--exact", exact_, "").Excludes(rate);
    command_.AddFlag("--high-water", 20, high_water_, "").Range(1, 100);
    command_.Add("--max-bytes", max_bytes_, "").Bytes();
    command_.Add("--config", config_, "").CommandLineOnly();
  }
  ~ConfigurationFileTest() override { fs::remove_all(root_); }

  std::string path() const { return root_ / "heaptap.conf"; }

  // Parses `heaptap daemon WORDS...` with a file of this contents. To be called once.
  absl::Status Apply(const std::string& contents, std::vector<std::string> words = {}) {
    std::ofstream(path()) << contents;
    return Parse(std::move(words));
  }
  absl::Status Parse(std::vector<std::string> words = {}) {
    words.insert(words.begin(), "daemon");
    if (absl::Status parsed = line_.Parse(std::move(words)); !parsed.ok()) return parsed;
    return ApplyConfigurationFile(path(), command_);
  }
  // The message, after the path.
  std::string Error(const std::string& contents) {
    const absl::Status status = Apply(contents);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    std::string message(status.message());
    EXPECT_EQ(message.rfind(path(), 0), 0) << message;
    return message.substr(std::min(message.size(), path().size()));
  }

  fs::path root_;
  CommandLine line_;
  Command command_;
  std::vector<std::string> rules_;
  std::string listen_;
  std::string config_;
  int lg_sample_ = -1;
  bool exact_ = false;
  int high_water_ = 0;
  uint64_t max_bytes_ = 0;
};

TEST_F(ConfigurationFileTest, Values) {
  ASSERT_EQ(Apply("# a comment\n\n  lg-sample = 16 \nmax-bytes=10G\r\n\t# another\nlisten=[::1]:8078"),
            absl::OkStatus());
  EXPECT_EQ(lg_sample_, 16);
  EXPECT_EQ(max_bytes_, uint64_t{10} << 30);
  EXPECT_EQ(listen_, "[::1]:8078");
  EXPECT_FALSE(exact_);
}

TEST_F(ConfigurationFileTest, AValueIsAllOfTheLine) {
  ASSERT_EQ(Apply("rule=comm=a,b lg-sample=3\n"
                  "lg-sample=16\n"
                  "rule = \"comm=c#d cgroup=*[xy] exact\"\n"
                  "rule=comm=\"e\"\n"
                  "rule=\"\"\n"),
            absl::OkStatus());
  EXPECT_THAT(rules_, ElementsAre("comm=a,b lg-sample=3", "comm=c#d cgroup=*[xy] exact", "comm=\"e\"", ""));
}

TEST_F(ConfigurationFileTest, FlagAlone) {
  ASSERT_EQ(Apply("exact\nhigh-water\n"), absl::OkStatus());
  EXPECT_TRUE(exact_);
  EXPECT_EQ(high_water_, 20);
}

TEST_F(ConfigurationFileTest, FlagWithAValue) {
  ASSERT_EQ(Apply("exact=true\nhigh-water=50\n"), absl::OkStatus());
  EXPECT_TRUE(exact_);
  EXPECT_EQ(high_water_, 50);
}

TEST_F(ConfigurationFileTest, AFlagThatIsFalseIsNotThere) {
  ASSERT_EQ(Apply("exact=false\nlg-sample=5\n"), absl::OkStatus());
  EXPECT_FALSE(exact_);
  EXPECT_EQ(lg_sample_, 5);
}

TEST_F(ConfigurationFileTest, TheCommandLineWins) {
  ASSERT_EQ(Apply("lg-sample=16\nrule=exact\nlisten=x\n", {"--lg-sample=5", "--rule=comm=a"}), absl::OkStatus());
  EXPECT_EQ(lg_sample_, 5);
  EXPECT_THAT(rules_, ElementsAre("comm=a"));
  EXPECT_EQ(listen_, "x");
}

TEST_F(ConfigurationFileTest, WhatTheCommandLineExcludesIsLeftOut) {
  ASSERT_EQ(Apply("lg-sample=16\n", {"--exact"}), absl::OkStatus());
  EXPECT_EQ(lg_sample_, -1);
  EXPECT_TRUE(exact_);
}

TEST_F(ConfigurationFileTest, AnEmptyFileSetsNothing) {
  ASSERT_EQ(Apply(""), absl::OkStatus());
  EXPECT_THAT(rules_, IsEmpty());
}

TEST_F(ConfigurationFileTest, NoFile) { EXPECT_TRUE(absl::IsNotFound(Parse())); }

TEST_F(ConfigurationFileTest, UnknownOption) {
  EXPECT_EQ(Error("exact\n\nlg_sample=3\n"), ", line 3: there is no option lg_sample; see heaptap daemon --help");
}

TEST_F(ConfigurationFileTest, OptionsForTheCommandLineOnly) {
  EXPECT_THAT(Error("config=/etc/passwd"), HasSubstr("there is no option config"));
}

TEST_F(ConfigurationFileTest, HelpIsNoOption) { EXPECT_THAT(Error("help"), HasSubstr("there is no option help")); }

TEST_F(ConfigurationFileTest, Sections) { EXPECT_THAT(Error("[daemon]"), HasSubstr("there is no option [daemon]")); }

TEST_F(ConfigurationFileTest, NoName) { EXPECT_THAT(Error("=x"), HasSubstr(", line 1: there is no option")); }

TEST_F(ConfigurationFileTest, Dashes) { EXPECT_THAT(Error("--exact"), HasSubstr("there is no option --exact")); }

TEST_F(ConfigurationFileTest, NoValue) { EXPECT_EQ(Error("listen"), ", line 1: listen: expected listen=VALUE"); }

TEST_F(ConfigurationFileTest, FlagWithAnEmptyValue) {
  EXPECT_EQ(Error("exact="), ", line 1: exact=: expected a value, or the name alone");
}

TEST_F(ConfigurationFileTest, BadValue) {
  EXPECT_THAT(Error("exact=false\nlg-sample=64"), HasSubstr(", line 2: --lg-sample: "));
}

TEST_F(ConfigurationFileTest, Twice) {
  EXPECT_EQ(Error("lg-sample=3\n\nlg-sample=4"), ", line 3: lg-sample is already set in line 1");
}

TEST_F(ConfigurationFileTest, Excluded) { EXPECT_THAT(Error("lg-sample=3\nexact"), HasSubstr("cannot be combined")); }

TEST_F(ConfigurationFileTest, ControlCharactersAreNotRepeated) {
  EXPECT_EQ(Error("\x1b[2J"), ", line 1: there is no option ?[2J; see heaptap daemon --help");
}

TEST_F(ConfigurationFileTest, APipeIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_THAT(Parse().message(), HasSubstr("not a regular file"));
}

TEST_F(ConfigurationFileTest, ALargeFileIsRefused) {
  EXPECT_THAT(Apply(std::string((1 << 20) + 1, '\n')).message(), HasSubstr("larger than 1 MiB"));
}

}  // namespace
}  // namespace heaptap::cli
