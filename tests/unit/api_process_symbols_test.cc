// SPDX-License-Identifier: Apache-2.0
//
// Tests names in processes that run, have ended, or have been replaced.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/fake_collector.h"
#include "tests/unit/symbolize_program.h"
#include "userspace/api/process_symbols.h"
#include "userspace/elf/mappings.h"
#include "userspace/export/frame_names.h"
#include "userspace/process/handle.h"
#include "userspace/process/maps.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"

namespace heaptap::api {
namespace {

using ::testing::HasSubstr;

std::string FirstName(const exporter::FindSourceFrames& find, uint64_t address) {
  const std::vector<exporter::SourceFrame> frames = find(address);
  return frames.empty() ? "" : frames.front().function;
}

class ProcessSymbolsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFile(folder_ / "program.c",
              "#include <unistd.h>\nint FunctionThatWaits(void) { return pause(); }\n"
              "int main(void) { return FunctionThatWaits(); }\n");
    symbolize::Shell(absl::StrCat("gcc -g -O0 -o ", program_, " ", folder_ / "program.c"));
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execl(program_.c_str(), program_.c_str(), nullptr);
      _exit(1);
    }
    ASSERT_GT(child_, 0);
    while (process::ExecutableOf(child_) != program_ || Program() == nullptr) {
      ASSERT_EQ(waitpid(child_, nullptr, WNOHANG), 0) << "it has ended";
      std::this_thread::yield();
    }
    AddChild();
  }
  void TearDown() override { End(); }

  const elf::Mapping* Program() {
    const absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(child_);
    if (!mappings.ok()) return nullptr;
    for (const elf::Mapping& mapping : *mappings) {
      if (mapping.path == program_) program_mapping_ = mapping;
    }
    return program_mapping_.path == program_ ? &program_mapping_ : nullptr;
  }

  void AddChild() {
    for (const symbolize::Symbol& symbol : symbolize::FunctionsOf(program_)) {
      // In such a program code lies at the same place in the file and in memory.
      if (symbol.name == "FunctionThatWaits")
        place_ = program_mapping_.start - program_mapping_.file_offset + symbol.start;
    }
    ASSERT_NE(place_, 0u);
    AddProcess(collector_, child_, 0, "child", 100, {place_ + 1}, {program_mapping_}, program_);
  }

  void End() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }

  profile::Snapshot& snapshot() { return collector_.snapshots.begin()->second; }

  TemporaryFolder folder_;
  const std::string program_ = std::filesystem::canonical(folder_.path()) / "program";
  pid_t child_ = -1;
  elf::Mapping program_mapping_;
  uint64_t place_ = 0;
  FakeCollector collector_;
  worker::Crews crews_;
};

TEST_F(ProcessSymbolsTest, RunningProcess) {
  ProcessSymbols symbols(collector_, crews_);
  const exporter::FindSourceFrames find = symbols.FindAll(snapshot());
  EXPECT_THAT(FirstName(find, place_), HasSubstr("FunctionThatWaits"));
  EXPECT_EQ(FirstName(find, 1), "");
  const std::string build_id = symbolize::OutputOf(absl::StrCat("readelf -n ", program_));
  EXPECT_THAT(build_id,
              HasSubstr(absl::StrCat("Build ID: ", absl::BytesToHexString(snapshot().profile.mappings[0].build_id))));
  EXPECT_FALSE(snapshot().profile.mappings[0].build_id.empty());
}

TEST_F(ProcessSymbolsTest, DeletedFileOfRunningProcess) {
  std::filesystem::remove(program_);
  ProcessSymbols symbols(collector_, crews_);
  EXPECT_THAT(FirstName(symbols.FindAll(snapshot()), place_), HasSubstr("FunctionThatWaits"));
}

TEST_F(ProcessSymbolsTest, EndedProcess) {
  End();
  ProcessSymbols symbols(collector_, crews_);
  EXPECT_THAT(FirstName(symbols.FindAll(snapshot()), place_), HasSubstr("FunctionThatWaits"));
}

TEST_F(ProcessSymbolsTest, ReplacedFileOfEndedProcess) {
  End();
  std::filesystem::rename(program_, folder_ / "old");
  std::filesystem::copy_file(folder_ / "old", program_);
  ProcessSymbols symbols(collector_, crews_);
  EXPECT_EQ(FirstName(symbols.FindAll(snapshot()), place_), "") << "another file has the name";
  EXPECT_EQ(snapshot().profile.mappings[0].build_id, "");
}

// The process that has the PID now maps the same file at the same place, but is not the process of the profile.
TEST_F(ProcessSymbolsTest, AnotherProcessHasThePid) {
  profile::Snapshot old = snapshot();
  collector_.ReusePid(child_);
  std::filesystem::remove(program_);
  ProcessSymbols symbols(collector_, crews_);
  EXPECT_EQ(FirstName(symbols.FindAll(old), place_), "");
  EXPECT_THAT(FirstName(symbols.FindAll(snapshot()), place_), HasSubstr("FunctionThatWaits"));
}

TEST_F(ProcessSymbolsTest, ManyAtOnce) {
  ProcessSymbols symbols(collector_, crews_);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      profile::Snapshot mine = snapshot();
      EXPECT_THAT(FirstName(symbols.FindAll(mine), place_), HasSubstr("FunctionThatWaits"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ProcessSymbolsTest, PatienceIsOver) {
  ProcessSymbols symbols(collector_, crews_, {.patience = absl::ZeroDuration()});
  EXPECT_EQ(FirstName(symbols.FindAll(snapshot()), place_), "");
}

}  // namespace
}  // namespace heaptap::api
