// SPDX-License-Identifier: Apache-2.0
//
// The dump handshake with a collector in the same process, by mallctl. DumpTest needs MALLOC_CONF=prof:true, which the
// rule that runs the tests gives; MallctlDump runs with it and without.
#include "allocator/profiling/dump.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "allocator/core/control.h"
#include "allocator/jemalloc/mallctl/mallctl.h"
#include "allocator/process/process.h"
#include "allocator/sampling/probes.h"
#include "mallctl_values.h"
#include "recorder.h"
#include "settable_clock.h"
#include "tests/unit/support/folder.h"

namespace heaptap {
namespace {

using testing::Prof;

int DumpTo(const char* path) { return Mallctl("prof.dump", nullptr, nullptr, &path, sizeof(path)); }

class DumpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(Prof()) << "the rule that runs the tests has to ask for it";
    ASSERT_EQ(chdir(folder_.path().c_str()), 0);
  }
  void TearDown() override {
    heaptap_semaphore_dump = 0;
    testing::SetDumpHandler(nullptr);
    ASSERT_EQ(chdir("/"), 0);
  }

  // A collector that answers with `error` at once.
  void Answer(int error) {
    heaptap_semaphore_dump = 1;
    testing::SetDumpHandler([this, error](heaptap_dump_request* request) {
      kind_ = static_cast<char>(request->kind);
      if (error == 0) {
        EXPECT_EQ(write(request->file_fd, "profile\n", 8), 8);
      }
      request->error = error;
      request->leak_bytes = 10;
      __atomic_store_n(&request->answered, request->sequence, __ATOMIC_RELEASE);
      uint64_t one = 1;
      EXPECT_EQ(write(request->event_fd, &one, sizeof(one)), 8);
    });
  }

  TemporaryFolder folder_;
  char kind_ = 0;
};

TEST(MallctlDump, OptProf) {
  bool value = !Prof();
  size_t length = sizeof(value);
  EXPECT_EQ(Mallctl("opt.prof", &value, &length, nullptr, 0), 0);
  EXPECT_EQ(value, Prof());
  EXPECT_EQ(Mallctl("opt.prof", nullptr, nullptr, &value, sizeof(value)), EPERM);
  uint32_t wide = 0xffffffff;
  length = sizeof(wide);
  EXPECT_EQ(Mallctl("opt.prof", &wide, &length, nullptr, 0), EINVAL);
  EXPECT_EQ(length, 1u);
}

TEST(MallctlDump, ProfActive) {
  bool value = true;
  bool old = false;
  size_t length = sizeof(old);
  if (!Prof()) {
    EXPECT_EQ(Mallctl("prof.active", nullptr, nullptr, &value, sizeof(value)), ENOENT);
    value = false;
    EXPECT_EQ(Mallctl("prof.active", nullptr, nullptr, &value, sizeof(value)), 0);
    old = true;
    EXPECT_EQ(Mallctl("prof.active", &old, &length, nullptr, 0), 0);
    EXPECT_FALSE(old);
    EXPECT_EQ(heaptap_control.active, 1u) << "a collector from outside decides for itself";
    return;
  }
  value = false;
  EXPECT_EQ(Mallctl("prof.active", &old, &length, &value, sizeof(value)), 0);
  EXPECT_TRUE(old);
  EXPECT_EQ(heaptap_control.active, 0u);
  EXPECT_EQ(Mallctl("prof.active", &old, &length, nullptr, 0), 0);
  EXPECT_FALSE(old);
  value = true;
  EXPECT_EQ(Mallctl("prof.active", nullptr, nullptr, &value, sizeof(value)), 0);
  EXPECT_EQ(heaptap_control.active, 1u);
  EXPECT_EQ(Mallctl("prof.active", nullptr, nullptr, &value, 4), EINVAL);
}

// With it nobody listens here.
TEST(MallctlDump, NeedsProf) { EXPECT_EQ(DumpTo("x"), Prof() ? EFAULT : ENOENT); }

TEST_F(DumpTest, Arguments) {
  const char* path = "x";
  size_t length = sizeof(path);
  EXPECT_EQ(Mallctl("prof.dump", &path, &length, nullptr, 0), EPERM);
  EXPECT_EQ(Mallctl("prof.dump", nullptr, nullptr, &path, 4), EINVAL);
}

TEST_F(DumpTest, WithoutACollectorTouchesNothing) {
  WriteFile("old", "keep");
  EXPECT_EQ(DumpTo("old"), EFAULT);
  EXPECT_EQ(ReadFile("old"), "keep");
}

// A program may close all descriptors that it does not know. The wait ends soon because no collector has said that it
// records this process. The process looks at the clock once in each step of the wait, and sleeps in between: on a busy
// machine the steps are longer, and so fewer.
TEST_F(DumpTest, WaitsIdlyWhenItsDescriptorIsClosed) {
  constexpr uint64_t kWait = 1500;  // milliseconds
  constexpr uint64_t kStep = 50;
  constexpr uint64_t kOtherReads = 10;  // of the limits, before and after the wait
  heaptap_semaphore_dump = 1;
  testing::SetDumpHandler([](heaptap_dump_request* request) { close(request->event_fd); });
  const uint64_t before = testing::ClockReads();
  EXPECT_EQ(DumpTo("never"), EFAULT);
  const uint64_t reads = testing::ClockReads() - before;
  EXPECT_GT(reads, 1u);
  EXPECT_LE(reads, kWait / kStep + 1 + kOtherReads);
  EXPECT_FALSE(std::filesystem::exists("never"));
}

TEST_F(DumpTest, ToANameAndToAutomaticNames) {
  Answer(0);
  EXPECT_EQ(DumpTo("mine"), 0);
  EXPECT_EQ(kind_, 'm');
  EXPECT_EQ(ReadFile("mine"), "profile\n");
  std::string prefix = std::string(ProcessConfiguration().prefix) + "." + std::to_string(getpid());
  EXPECT_EQ(DumpTo(nullptr), 0);
  EXPECT_EQ(Mallctl("prof.dump", nullptr, nullptr, nullptr, 0), 0);
  EXPECT_EQ(ReadFile(prefix + ".0.m0.heap"), "profile\n");
  EXPECT_EQ(ReadFile(prefix + ".1.m1.heap"), "profile\n");
  EXPECT_EQ(DumpTo("/no/such/directory/x"), EFAULT);
}

TEST_F(DumpTest, PrefixOfAutomaticNames) {
  Answer(0);
  auto set = [](std::string prefix) {
    const char* text = prefix.c_str();
    int error = Mallctl("prof.prefix", nullptr, nullptr, &text, sizeof(text));
    prefix.assign(prefix.size(), 'x');  // it was copied
    return error;
  };
  auto files = [this](const std::string& prefix) {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      count += entry.path().filename().string().starts_with(prefix + "." + std::to_string(getpid()) + ".");
    }
    return count;
  };
  EXPECT_EQ(set("another"), 0);
  EXPECT_EQ(DumpTo(nullptr), 0);
  EXPECT_EQ(files("another"), 1u);
  EXPECT_EQ(set(""), 0);
  EXPECT_EQ(DumpTo(nullptr), EFAULT) << "no automatic dumps";
  const char* option = nullptr;
  size_t length = sizeof(option);
  EXPECT_EQ(Mallctl("opt.prof_prefix", &option, &length, nullptr, 0), 0);
  EXPECT_STREQ(option, "jeprof");
  EXPECT_EQ(set("jeprof"), 0);
  EXPECT_EQ(DumpTo(nullptr), 0);
  EXPECT_EQ(files("jeprof"), 1u);
}

class AutomaticNames : public DumpTest {
 protected:
  // The number of the next dump of the process, and of its kind. They are equal where all dumps are of one kind.
  int NextNumber() {
    EXPECT_EQ(DumpTo(nullptr), 0);
    int last = -1;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      const std::string name = entry.path().filename().string();
      const size_t begin = Name(0).find(".0.m") + 1;
      if (name.starts_with(Name(0).substr(0, begin))) last = std::max(last, std::stoi(name.substr(begin)));
    }
    return last + 1;
  }
  static std::string Name(int number) {
    const std::string text = std::to_string(number);
    return "jeprof." + std::to_string(getpid()) + "." + text + ".m" + text + ".heap";
  }
  static std::string PartOf(const std::string& name) { return name + "." + std::to_string(getpid()) + ".part"; }
  static mode_t ModeOf(const std::string& name) {
    struct stat status;
    EXPECT_EQ(lstat(name.c_str(), &status), 0);
    return status.st_mode;
  }
};

// Whoever may write to the folder has put something under the next names.
TEST_F(AutomaticNames, AreTheNextThatNothingHas) {
  Answer(0);
  const int next = NextNumber();
  WriteFile("precious", "precious");
  ASSERT_EQ(symlink("precious", Name(next).c_str()), 0);
  ASSERT_EQ(symlink("absent", Name(next + 1).c_str()), 0);
  WriteFile(Name(next + 2), "of an earlier process");
  ASSERT_EQ(symlink("precious", PartOf(Name(next + 3)).c_str()), 0);
  ASSERT_EQ(mkfifo(Name(next + 4).c_str(), 0666), 0);
  EXPECT_EQ(DumpTo(nullptr), 0);
  EXPECT_EQ(ReadFile("precious"), "precious");
  EXPECT_FALSE(std::filesystem::exists("absent"));
  EXPECT_EQ(ReadFile(Name(next + 2)), "of an earlier process");
  EXPECT_FALSE(std::filesystem::exists(Name(next + 3)));
  EXPECT_EQ(ReadFile(Name(next + 5)), "profile\n");
  EXPECT_EQ(ModeOf(Name(next + 5)), S_IFREG | 0600u);
  EXPECT_FALSE(std::filesystem::exists(PartOf(Name(next + 5))));
}

TEST_F(AutomaticNames, WaitForNobodyWhoTakesThemDuringTheDump) {
  Answer(0);
  const int next = NextNumber();
  WriteFile("precious", "precious");
  testing::SetDumpHandler([&](heaptap_dump_request* request) {
    EXPECT_EQ(symlink("precious", Name(next).c_str()), 0);
    WriteFile(Name(next + 1), "of another");
    EXPECT_EQ(write(request->file_fd, "profile\n", 8), 8);
    __atomic_store_n(&request->answered, request->sequence, __ATOMIC_RELEASE);
  });
  EXPECT_EQ(DumpTo(nullptr), 0);
  EXPECT_EQ(ReadFile("precious"), "precious");
  EXPECT_EQ(ReadFile(Name(next + 1)), "of another");
  EXPECT_EQ(ReadFile(Name(next + 2)), "profile\n");
  EXPECT_FALSE(std::filesystem::exists(PartOf(Name(next))));
}

TEST_F(AutomaticNames, AreTriedSoOftenOnly) {
  constexpr int kMaxNames = 1 << 16;
  Answer(0);
  const int next = NextNumber();
  for (int i = 0; i < kMaxNames; i++) ASSERT_EQ(symlink("absent", Name(next + i).c_str()), 0);
  EXPECT_EQ(DumpTo(nullptr), EFAULT);
  EXPECT_EQ(DumpTo(nullptr), 0);
  EXPECT_EQ(ReadFile(Name(next + kMaxNames)), "profile\n");
}

TEST_F(DumpTest, ANameOfTheProgramFollowsLinks) {
  Answer(0);
  WriteFile("target", "a longer text than the profile");
  ASSERT_EQ(symlink("target", "link"), 0);
  EXPECT_EQ(DumpTo("link"), 0);
  EXPECT_TRUE(std::filesystem::is_symlink("link"));
  EXPECT_TRUE(ReadFile("target").starts_with("profile\n"));
}

TEST_F(DumpTest, Errors) {
  Answer(ESRCH);
  EXPECT_EQ(DumpTo("x"), EFAULT);
  Answer(EIO);
  EXPECT_EQ(DumpTo("x"), EFAULT);
}

TEST_F(DumpTest, WaitsForASlowCollectorAndIgnoresLateAnswers) {
  heaptap_semaphore_dump = 1;
  std::thread collector;
  testing::SetDumpHandler([&](heaptap_dump_request* request) {
    // A copy of the descriptor: the one who waits closes the other as soon as an answer is there.
    collector = std::thread([request, sequence = request->sequence, event = dup(request->event_fd)] {
      uint64_t one = 1;
      request->error = EIO;
      __atomic_store_n(&request->answered, sequence - 1, __ATOMIC_RELEASE);  // to the one before
      EXPECT_EQ(write(event, &one, sizeof(one)), 8);
      // The one who waits has looked at it once it is not readable any more.
      pollfd readable{event, POLLIN, 0};
      while (poll(&readable, 1, 0) == 1) std::this_thread::yield();
      request->error = 0;
      __atomic_store_n(&request->answered, sequence, __ATOMIC_RELEASE);
      EXPECT_EQ(write(event, &one, sizeof(one)), 8);
      close(event);
    });
  });
  EXPECT_EQ(DumpTo("slow"), 0);
  collector.join();
}

// How long a process waits, under a clock that the test sets, for a collector that does not answer.
class DumpPatienceTest : public DumpTest {
 protected:
  DumpPatienceTest() {
    heaptap_semaphore_dump = 1;
    RecordedBy(getpid());
  }
  ~DumpPatienceTest() override {
    RecordedBy(0);
    clock_.Advance(kUnresponsive);
  }

  static void RecordedBy(pid_t collector) {
    __atomic_store_n(&heaptap_control.collector_pid, static_cast<uint32_t>(collector), __ATOMIC_RELAXED);
  }
  static uint32_t Waits(uint32_t heaptap_waits::*wait) {
    return __atomic_load_n(&(::heaptap_waits.*wait), __ATOMIC_ACQUIRE);
  }

  // A thread that asks for a dump. The object is there when the thread waits.
  class Request {
   public:
    explicit Request(uint32_t heaptap_waits::*wait = &heaptap_waits::dump_answers) {
      const uint32_t before = Waits(wait);
      thread_ = std::thread([this] {
        error_ = DumpTo("late");
        is_over_ = true;
      });
      while (Waits(wait) == before) std::this_thread::yield();
    }
    ~Request() {
      if (thread_.joinable()) thread_.join();
    }

    // Whether it goes on after it has looked at the clock. REQUIRES: no other thread waits.
    bool GoesOnWaiting() const {
      // A thread that gives up reads the clock three times at most: before the caller has set it, then to find that it
      // is late, and to note that.
      constexpr uint64_t kMostReads = 3;
      const uint64_t before = testing::ClockReads();
      while (!is_over_ && testing::ClockReads() <= before + kMostReads) std::this_thread::yield();
      return !is_over_;
    }
    int Error() {
      thread_.join();
      return error_;
    }

   private:
    std::atomic<bool> is_over_ = false;
    int error_ = -1;
    std::thread thread_;
  };

  // Asserts that a request is given up after so many milliseconds, and not before.
  void ExpectPatience(uint64_t milliseconds) {
    Request request;
    clock_.Advance(milliseconds - 1);
    EXPECT_TRUE(request.GoesOnWaiting()) << "given up before " << milliseconds;
    clock_.Advance(1);
    EXPECT_FALSE(request.GoesOnWaiting()) << "not given up after " << milliseconds;
    SetPatience(0);  // the test must end
    EXPECT_EQ(request.Error(), EAGAIN);
    SetPatience(kPatience);
  }

  static void SetPatience(uint32_t milliseconds) {
    __atomic_store_n(&::heaptap_waits.dump_patience, milliseconds, __ATOMIC_RELAXED);
  }

  static constexpr uint32_t kPatience = HEAPTAP_DUMP_TIMEOUT_MILLISECONDS;
  static constexpr uint64_t kShortPatience = kPatience / 10;
  static constexpr uint64_t kUnresponsive = 60000;

  testing::SettableClock clock_;
};

TEST_F(DumpPatienceTest, IsShortForACollectorThatWasLateForAMinute) {
  ExpectPatience(kPatience);
  ExpectPatience(kShortPatience);
  clock_.Advance(kUnresponsive - 1);
  ExpectPatience(kShortPatience);
  clock_.Advance(kUnresponsive);
  ExpectPatience(kPatience);
}

TEST_F(DumpPatienceTest, IsWholeForANewCollector) {
  ExpectPatience(kPatience);
  RecordedBy(getppid());
  ExpectPatience(kPatience);
  ExpectPatience(kShortPatience);
}

TEST_F(DumpPatienceTest, IsWholeAfterAnAnswer) {
  ExpectPatience(kPatience);
  Answer(0);
  EXPECT_EQ(DumpTo("in time"), 0);
  testing::SetDumpHandler(nullptr);
  ExpectPatience(kPatience);
}

// The clock stands still.
TEST_F(DumpPatienceTest, IsTakenAwayByADebugger) {
  const uint32_t answers = Waits(&heaptap_waits::dump_answers);
  Request first;
  Request second(&heaptap_waits::dump_turns);
  SetPatience(0);
  EXPECT_EQ(first.Error(), EAGAIN);
  EXPECT_EQ(second.Error(), EAGAIN);
  EXPECT_EQ(Waits(&heaptap_waits::dump_answers), answers + 1) << "the second gave up with the first";
  SetPatience(kPatience);
}

}  // namespace
}  // namespace heaptap
