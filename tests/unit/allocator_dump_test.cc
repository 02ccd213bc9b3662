// SPDX-License-Identifier: Apache-2.0
//
// mallctl and the dump handshake with a collector in the same process. Needs MALLOC_CONF=prof:true, which the rule that
// runs the tests gives; without it the tests of the other half run.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "dump.h"
#include "mallctl.h"
#include "probes.h"
#include "process.h"
#include "recorder.h"
#include "statistics.h"

namespace heaptap {
namespace {

class Mallctls : public ::testing::Test {
 protected:
  Mallctls() {
    directory_ = ::testing::TempDir() + "heaptap_dump_test." + std::to_string(getpid());
    std::string command = "mkdir -p " + directory_;
    EXPECT_EQ(system(command.c_str()), 0);
    EXPECT_EQ(chdir(directory_.c_str()), 0);
  }
  ~Mallctls() override {
    heaptap_semaphore_dump = 0;
    testing::SetDumpHandler(nullptr);
    EXPECT_EQ(chdir("/"), 0);
    std::string command = "rm -rf " + directory_;
    EXPECT_EQ(system(command.c_str()), 0);
  }

  bool prof() const { return ProcessConfiguration().prof; }

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

  static int DumpTo(const char* path) { return Mallctl("prof.dump", nullptr, nullptr, &path, sizeof(path)); }

  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  std::string directory_;
  char kind_ = 0;
};

TEST_F(Mallctls, UnknownNames) {
  EXPECT_EQ(Mallctl("foo", nullptr, nullptr, nullptr, 0), ENOENT);
  EXPECT_EQ(Mallctl("prof", nullptr, nullptr, nullptr, 0), ENOENT);
}

TEST_F(Mallctls, OptProf) {
  bool value = !prof();
  size_t length = sizeof(value);
  EXPECT_EQ(Mallctl("opt.prof", &value, &length, nullptr, 0), 0);
  EXPECT_EQ(value, prof());
  EXPECT_EQ(Mallctl("opt.prof", nullptr, nullptr, &value, sizeof(value)), EPERM);
  uint32_t wide = 0xffffffff;
  length = sizeof(wide);
  EXPECT_EQ(Mallctl("opt.prof", &wide, &length, nullptr, 0), EINVAL);
  EXPECT_EQ(length, 1u);
}

TEST_F(Mallctls, ProfActive) {
  bool value = true;
  bool old = false;
  size_t length = sizeof(old);
  if (!prof()) {
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

TEST_F(Mallctls, DumpWithoutProf) {
  if (prof()) return;
  EXPECT_EQ(DumpTo("x"), ENOENT);
}

TEST_F(Mallctls, DumpArguments) {
  if (!prof()) return;
  const char* path = "x";
  size_t length = sizeof(path);
  EXPECT_EQ(Mallctl("prof.dump", &path, &length, nullptr, 0), EPERM);
  EXPECT_EQ(Mallctl("prof.dump", nullptr, nullptr, &path, 4), EINVAL);
}

TEST_F(Mallctls, DumpWithoutACollectorTouchesNothing) {
  if (!prof()) return;
  std::ofstream("old") << "keep";
  EXPECT_EQ(DumpTo("old"), EFAULT);
  EXPECT_EQ(Read("old"), "keep");
}

TEST_F(Mallctls, DumpToANameAndToAutomaticNames) {
  if (!prof()) return;
  Answer(0);
  EXPECT_EQ(DumpTo("mine"), 0);
  EXPECT_EQ(kind_, 'm');
  EXPECT_EQ(Read("mine"), "profile\n");
  std::string prefix = std::string(ProcessConfiguration().prefix) + "." + std::to_string(getpid());
  EXPECT_EQ(DumpTo(nullptr), 0);
  EXPECT_EQ(Mallctl("prof.dump", nullptr, nullptr, nullptr, 0), 0);
  EXPECT_EQ(Read(prefix + ".0.m0.heap"), "profile\n");
  EXPECT_EQ(Read(prefix + ".1.m1.heap"), "profile\n");
  EXPECT_EQ(DumpTo("/no/such/directory/x"), EFAULT);
}

TEST_F(Mallctls, PrefixOfAutomaticNames) {
  if (!prof()) return;
  Answer(0);
  auto set = [](std::string prefix) {
    const char* text = prefix.c_str();
    int error = Mallctl("prof.prefix", nullptr, nullptr, &text, sizeof(text));
    prefix.assign(prefix.size(), 'x');  // it was copied
    return error;
  };
  auto files = [this](const std::string& prefix) {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
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

TEST_F(Mallctls, DumpErrors) {
  if (!prof()) return;
  Answer(ESRCH);
  EXPECT_EQ(DumpTo("x"), EFAULT);
  Answer(EIO);
  EXPECT_EQ(DumpTo("x"), EFAULT);
}

TEST_F(Mallctls, DumpWaitsForASlowCollectorAndIgnoresLateAnswers) {
  if (!prof()) return;
  heaptap_semaphore_dump = 1;
  std::thread collector;
  testing::SetDumpHandler([&](heaptap_dump_request* request) {
    collector = std::thread([request, sequence = request->sequence, event = request->event_fd] {
      uint64_t one = 1;
      request->error = EIO;
      __atomic_store_n(&request->answered, sequence - 1, __ATOMIC_RELEASE);  // to the one before
      EXPECT_EQ(write(event, &one, sizeof(one)), 8);
      usleep(50000);
      request->error = 0;
      __atomic_store_n(&request->answered, sequence, __ATOMIC_RELEASE);
      EXPECT_EQ(write(event, &one, sizeof(one)), 8);
    });
  });
  EXPECT_EQ(DumpTo("slow"), 0);
  collector.join();
}

}  // namespace
}  // namespace heaptap
