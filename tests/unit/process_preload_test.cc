// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/support/folder.h"
#include "userspace/process/preload.h"

namespace heaptap::process {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;

// Puts environment variables back.
class Environment {
 public:
  explicit Environment(const char* name) : name_(name) {
    const char* value = getenv(name);
    was_set_ = value != nullptr;
    if (was_set_) value_ = value;
    unsetenv(name);
  }
  ~Environment() { was_set_ ? setenv(name_, value_.c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  bool was_set_;
  std::string value_;
};

class Preload : public ::testing::Test {
 protected:
  static std::vector<std::string> Conf() {
    const char* value = getenv(HEAPTAP_CONF_VARIABLE);
    return absl::StrSplit(value != nullptr ? value : "", ',', absl::SkipEmpty());
  }
  static std::string OurCollector() { return absl::StrCat("collector:", getpid()); }
  std::string Compile(const std::string& name, const std::string& flags) {
    std::ofstream(folder_ / "main.c") << "int main(void) { return 0; }\n";
    const fs::path path = folder_ / name;
    EXPECT_EQ(system(absl::StrCat("gcc ", flags, " ", (folder_ / "main.c").string(), " -o ", path.string()).c_str()),
              0);
    return path;
  }

  TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
  Environment preload_{"LD_PRELOAD"};
  Environment conf_{HEAPTAP_CONF_VARIABLE};
};

TEST_F(Preload, EnvironmentOfAPlainProgram) {
  SetPreloadEnvironment("/x/libheaptap.so", std::nullopt);
  EXPECT_STREQ(getenv("LD_PRELOAD"), "/x/libheaptap.so");
  EXPECT_THAT(Conf(), ElementsAre(OurCollector()));
}

TEST_F(Preload, WhatTheUserPreloadsStays) {
  setenv("LD_PRELOAD", "/a.so /b.so", 1);
  setenv(HEAPTAP_CONF_VARIABLE, "prof_seed:7,lg_prof_sample:3", 1);
  SetPreloadEnvironment("/x/libheaptap.so", 0);
  EXPECT_STREQ(getenv("LD_PRELOAD"), "/x/libheaptap.so:/a.so /b.so");
  EXPECT_THAT(Conf(), ElementsAre("prof_seed:7", "lg_prof_sample:3", OurCollector(), "lg_prof_sample:0"))
      << "the last one counts";
}

TEST_F(Preload, EmptyVariablesAreNone) {
  setenv("LD_PRELOAD", "", 1);
  setenv(HEAPTAP_CONF_VARIABLE, "", 1);
  SetPreloadEnvironment("/x/libheaptap.so", 12);
  EXPECT_STREQ(getenv("LD_PRELOAD"), "/x/libheaptap.so");
  EXPECT_THAT(Conf(), ElementsAre(OurCollector(), "lg_prof_sample:12"));
}

TEST_F(Preload, EntriesOfLdPreload) {
  EXPECT_THAT(SplitPreload(""), IsEmpty());
  EXPECT_THAT(SplitPreload(" a.so::/b.so  c.so:"), ElementsAre("a.so", "/b.so", "c.so"));
}

// A process can have one of the two libraries, and one copy of the guest, which the dynamic linker loads once.
TEST_F(Preload, OneLibraryOfHeaptap) {
  const std::string guest = folder_ / "libheaptap-guest.so";
  std::ofstream(guest) << "x";
  const auto check = [&](Library which, const std::string& preload) {
    setenv("LD_PRELOAD", preload.c_str(), 1);
    return CheckPreload(which, guest);
  };
  for (const char* preload : {"", "libjemalloc.so.2", "/x/libheaptap.so.old:/libheaptap/other.so"}) {
    EXPECT_TRUE(check(Library::kGuest, preload).ok()) << preload;
    EXPECT_TRUE(check(Library::kAllocator, preload).ok()) << preload;
  }
  EXPECT_TRUE(check(Library::kAllocator, "/x/libheaptap.so").ok());
  EXPECT_TRUE(check(Library::kGuest, "libjemalloc.so.2 " + guest).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(check(Library::kGuest, "a.so:/x/libheaptap.so")));
  EXPECT_TRUE(absl::IsInvalidArgument(check(Library::kGuest, "libheaptap.so")));
  EXPECT_TRUE(absl::IsInvalidArgument(check(Library::kGuest, "/x/libheaptap-guest.so")));
  EXPECT_TRUE(absl::IsInvalidArgument(check(Library::kAllocator, guest)));
  unsetenv("LD_PRELOAD");
  EXPECT_TRUE(CheckPreload(Library::kGuest, guest).ok());
}

TEST_F(Preload, FilesOfADynamicProgram) {
  const std::string program = Compile("dynamic", "-lm -Wl,--no-as-needed");
  const std::vector<std::string> files = FilesOfProgram(program);
  ASSERT_THAT(files, Not(IsEmpty()));
  EXPECT_EQ(files[0], program);
  EXPECT_THAT(files, Contains(EndsWith("/libc.so.6")));
  for (const std::string& file : files) EXPECT_TRUE(fs::exists(file)) << file;
}

TEST_F(Preload, PathsInAPreloadFile) {
  EXPECT_THAT(PathsInPreloadFile("/a/b.so /c.so:/d.so\n\t/e.so # /not.so\n#/nor.so\nlibf.so /$LIB/g.so\n/h.so"),
              ElementsAre("/a/b.so", "/c.so", "/d.so", "/e.so", "/h.so"));
  EXPECT_THAT(PathsInPreloadFile(""), IsEmpty());
}

TEST_F(Preload, FilesOfAStaticProgram) {
  const std::string program = Compile("static", "-static");
  EXPECT_THAT(FilesOfProgram(program), ElementsAre(program));
}

TEST_F(Preload, FilesOfAScript) {
  std::ofstream(folder_ / "script") << "#!/bin/sh\nexit 0\n";
  fs::permissions(folder_ / "script", fs::perms::owner_all);
  // A script yields at most itself; its interpreter is examined when it runs.
  for (const std::string& file : FilesOfProgram(folder_ / "script")) EXPECT_EQ(file, folder_ / "script");
}

TEST_F(Preload, ProgramsAreFoundAsExecvpDoes) {
  const std::string program = Compile("name", "");
  const Environment path("PATH");
  setenv("PATH", absl::StrCat("/nowhere:", folder_.string(), ":/bin").c_str(), 1);
  std::vector<std::string> files = FilesOfProgram("name");
  ASSERT_THAT(files, Not(IsEmpty()));
  EXPECT_EQ(files[0], program);
  EXPECT_THAT(FilesOfProgram("no-such-program"), IsEmpty());
  EXPECT_THAT(FilesOfProgram("/no/such/program"), IsEmpty());
}

TEST_F(Preload, AProgramWithABrokenLoaderEndsTheListing) {
  const std::string program = Compile("broken", "-Wl,--dynamic-linker=/bin/false");
  EXPECT_THAT(FilesOfProgram(program), ElementsAre(program));
  const std::string missing = Compile("missing", "-Wl,--dynamic-linker=/no/loader");
  EXPECT_THAT(FilesOfProgram(missing), ElementsAre(missing));
}

}  // namespace
}  // namespace heaptap::process
