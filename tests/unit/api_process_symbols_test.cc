// SPDX-License-Identifier: Apache-2.0
//
// Tests names in processes that run, have ended, or have been replaced.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/fake_collector.h"
#include "tests/unit/symbolize_program.h"
#include "userspace/api/process_symbols.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/handle.h"
#include "userspace/process/maps.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/frame_names.h"
#include "userspace/profile/snapshot.h"

namespace heaptap::api {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uid_t kUser = 1234;

std::string FirstName(const profile::FindSourceFrames& find, uint64_t address) {
  const std::vector<profile::SourceFrame> frames = find(address);
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

  // The same process once more, as one of this user.
  profile::Snapshot AddOfUser(uid_t user) {
    profile::ProcessSummary process = collector_.processes.front();
    process.owner = user;
    process.process_id++;
    collector_.processes.push_back(process);
    profile::Snapshot snapshot = collector_.snapshots.begin()->second;
    snapshot.process_id++;
    return snapshot;
  }
  // The profile is one of the C library, at any place.
  void UseLibrary() {
    const absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(child_);
    ASSERT_TRUE(mappings.ok()) << mappings.status();
    for (const elf::Mapping& mapping : *mappings) {
      if (!absl::StrContains(mapping.path, "/libc.so")) continue;
      snapshot().profile.mappings = {mapping};
      snapshot().profile.contexts[0].frames = {mapping.start + (mapping.end - mapping.start) / 2};
    }
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
  const profile::FindSourceFrames find = symbols.FindAll(snapshot());
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

TEST_F(ProcessSymbolsTest, OneUsersFilesDoNotDelayAnothers) {
  // A file without debug information, which is looked for elsewhere: for the first user without end.
  absl::Notification is_looked_for;
  absl::Notification is_over;
  std::atomic<bool> is_first = true;
  ProcessSymbols::Options options;
  options.symbolizer.debug_root = folder_ / "none";
  options.symbolizer.fetch = [&](const std::string&, const std::string&) {
    if (is_first.exchange(false)) {
      is_looked_for.Notify();
      is_over.WaitForNotification();
    }
    return base::FileDescriptor();
  };
  ProcessSymbols symbols(collector_, crews_, options);
  UseLibrary();
  profile::Snapshot slow = AddOfUser(kUser);
  std::thread user([&] { symbols.FindAll(slow); });
  is_looked_for.WaitForNotification();
  symbols.FindAll(snapshot());
  EXPECT_THAT(snapshot().profile.warnings, IsEmpty());
  is_over.Notify();
  user.join();
}

TEST_F(ProcessSymbolsTest, MoreUsersThanSymbolizers) {
  ProcessSymbols::Options options;
  options.users = 1;
  ProcessSymbols symbols(collector_, crews_, options);
  profile::Snapshot of_user = AddOfUser(kUser);
  for (profile::Snapshot* one : {&snapshot(), &of_user, &snapshot()}) {
    EXPECT_THAT(FirstName(symbols.FindAll(*one), place_), HasSubstr("FunctionThatWaits"));
  }
}

// A program chooses its names.
TEST_F(ProcessSymbolsTest, NamesThatTakeTooMuchMemory) {
  ProcessSymbols symbols(collector_, crews_, {.name_bytes = 10});
  EXPECT_EQ(FirstName(symbols.FindAll(snapshot()), place_), "");
  EXPECT_THAT(snapshot().profile.warnings, ElementsAre(AllOf(HasSubstr("names in one profile"), HasSubstr(program_))));
}

TEST_F(ProcessSymbolsTest, PatienceIsOver) {
  ProcessSymbols symbols(collector_, crews_, {.patience = absl::ZeroDuration()});
  EXPECT_EQ(FirstName(symbols.FindAll(snapshot()), place_), "");
  EXPECT_THAT(snapshot().profile.warnings, ElementsAre(AllOf(HasSubstr("no time for the names"), HasSubstr(program_))));
}

}  // namespace
}  // namespace heaptap::api
