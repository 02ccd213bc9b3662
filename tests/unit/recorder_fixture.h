// SPDX-License-Identifier: Apache-2.0
//
// A recorder with simulated books. Unless a test says otherwise, the processes do not exist, so everything that it sees
// comes from the books.
#ifndef HEAPTAP_TESTS_UNIT_RECORDER_FIXTURE_H_
#define HEAPTAP_TESTS_UNIT_RECORDER_FIXTURE_H_

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "tests/unit/support/folder.h"
#include "tests/unit/support/simulated_books.h"
#include "userspace/recording/recorder.h"

namespace heaptap::recording {

// Above the kernel's largest PID.
inline constexpr pid_t kParent = 5'000'001;
inline constexpr pid_t kChild = 5'000'002;
inline constexpr pid_t kOther = 5'000'003;

inline constexpr uint64_t kBytes = 1000;
inline constexpr uint32_t kDefaultRate = HEAPTAP_DEFAULT_LG_SAMPLE;

// What a dump of these tests says.
inline std::string Text(uint64_t objects, uint64_t bytes, uint32_t lg_sample = kDefaultRate, size_t mappings = 0) {
  return absl::StrCat(objects, " objects, ", bytes, " bytes, period ", uint64_t{1} << lg_sample, ", ", mappings,
                      " mappings");
}

inline std::string Format(const profile::Profile& profile) {
  const profile::LeakSummary live = profile.Leaks();
  return absl::StrCat(live.objects, " objects, ", live.bytes, " bytes, period ", profile.period, ", ",
                      profile.mappings.size(), " mappings");
}

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() { ::testing::internal::CaptureStderr(); }
  // The recorder's messages are shown if the test fails.
  ~RecorderTest() override {
    recorder_ = nullptr;
    const std::string said = ::testing::internal::GetCapturedStderr();
    if (HasFailure()) std::cerr << said;
  }

  // A recording of children and their children.
  RecorderOptions Children() {
    RecorderOptions options;
    options.prefix = folder_ / "heap";
    options.format = Format;
    options.follow = true;
    return options;
  }

  // A system-wide recording that outlives its recorder.
  RecorderOptions EveryProcess() {
    RecorderOptions options;
    options.format = Format;
    options.follow = true;
    options.system_wide = SystemWide{.state_folder = folder_.path(), .pin_folder = "simulated"};
    // The simulated kernel has one thread.
    options.background = base::Background::Place::kCaller;
    return options;
  }

  void Start(const RecorderOptions& options, bool adopts = false) {
    recorder_ = nullptr;
    absl::StatusOr<std::unique_ptr<Recorder>> recorder =
        Recorder::Start(options, {.books = bpf::MakeSimulatedBooks(kernel_, adopts),
                                  .mapping_events = bpf::MakeSimulatedMappingEvents(kernel_)});
    ASSERT_TRUE(recorder.ok()) << recorder.status();
    recorder_ = *std::move(recorder);
  }

  // Begins a recording of kParent. Returns its process id.
  uint64_t RecordParent() {
    Start(Children());
    const absl::Status status = recorder_->RecordChild(kParent);
    EXPECT_TRUE(status.ok()) << status;
    absl::MutexLock lock(&kernel_.mutex);
    return kernel_.processes.begin()->first;
  }

  // The contents of all dumps of a process.
  std::vector<std::string> Dumps(pid_t pid) const {
    std::vector<std::string> dumps;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      const std::string name = entry.path().filename();
      const std::vector<std::string> parts = absl::StrSplit(name, '.');  // NAME.PID.SEQUENCE.KIND.heap
      if (parts.size() > 1 && parts[1] == absl::StrCat(pid)) dumps.push_back(ReadFile(entry.path()));
    }
    return dumps;
  }

  bpf::MappingEvent Mapping(pid_t pid, uint64_t time) const {
    bpf::MappingEvent event = {};
    event.kind = bpf::MappingEvent::kMap;
    event.time = time;
    event.pid = pid;
    event.mapping.start = 0x1000;
    event.mapping.end = 0x2000;
    event.mapping.path = "[code]";  // without an inode: no file to read
    return event;
  }

  TemporaryFolder folder_;
  bpf::SimulatedKernel kernel_;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_TESTS_UNIT_RECORDER_FIXTURE_H_
