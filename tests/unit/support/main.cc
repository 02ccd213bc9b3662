// SPDX-License-Identifier: Apache-2.0
//
// main() of the GoogleTest programs. Stricter than GoogleTest's own:
//
//   - A test that hangs is named: after HEAPTAP_TEST_SECONDS (600) the program says which test is running and aborts.
//   - A pattern of --gtest_filter that matches no test is an error, so that a renamed test leaves no list in silence.
//   - A skipped test is a failure where tests can do everything, as root; HEAPTAP_SKIP_BPF=1 permits skipping.
#include <fcntl.h>
#include <fnmatch.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

// Wall time, because a deadlock uses no other. Beside tests that have priority, a test may get a hundredth of a
// processor.
constexpr unsigned kDefaultSeconds = 600;
constexpr int kBadUsage = 2;

// For the signal handler: the name of the test that runs, and stderr as it was, because GoogleTest puts a file in its
// place now and then.
char running[256];
int messages = STDERR_FILENO;

unsigned SecondsPerTest() {
  const char* value = getenv("HEAPTAP_TEST_SECONDS");
  return value != nullptr ? static_cast<unsigned>(atoi(value)) : kDefaultSeconds;
}

void OnAlarm(int) {
  constexpr char kWords[] = "\nno end in sight of the test ";
  if (write(messages, kWords, sizeof(kWords) - 1) < 0 || write(messages, running, strlen(running)) < 0 ||
      write(messages, "\n", 1) < 0) {
    _exit(1);
  }
  signal(SIGABRT, SIG_DFL);
  abort();
}

class Watchdog : public ::testing::EmptyTestEventListener {
 public:
  Watchdog() : seconds_(SecondsPerTest()) {
    constexpr int kOutOfTheWay = 100;  // tests may look at the next free number
    messages = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, kOutOfTheWay);
    signal(SIGALRM, OnAlarm);
  }

  void OnTestStart(const ::testing::TestInfo& test) override {
    snprintf(running, sizeof(running), "%s.%s", test.test_suite_name(), test.name());
    alarm(seconds_);
  }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    alarm(0);
    if (test.result()->Skipped()) skipped_.push_back(running);
  }

  const std::vector<std::string>& skipped() const { return skipped_; }

 private:
  unsigned seconds_;
  std::vector<std::string> skipped_;
};

std::vector<std::string> AllTests() {
  std::vector<std::string> names;
  const auto& program = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < program.total_test_suite_count(); i++) {
    const auto& suite = *program.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); j++) {
      names.push_back(std::string(suite.name()) + "." + suite.GetTestInfo(j)->name());
    }
  }
  return names;
}

// The patterns of a filter, those behind '-' too.
std::vector<std::string> Patterns(const std::string& filter) {
  std::vector<std::string> patterns(1);
  for (char character : filter) {
    if (character == ':' || character == '-') {
      patterns.emplace_back();
    } else {
      patterns.back() += character;
    }
  }
  std::erase(patterns, "");
  return patterns;
}

bool IsFilterUpToDate() {
  const std::vector<std::string> tests = AllTests();
  bool is_up_to_date = true;
  for (const std::string& pattern : Patterns(GTEST_FLAG_GET(filter))) {
    bool matches = false;
    for (const std::string& test : tests) matches = matches || fnmatch(pattern.c_str(), test.c_str(), 0) == 0;
    if (!matches) fprintf(stderr, "--gtest_filter: no test is called %s\n", pattern.c_str());
    is_up_to_date = is_up_to_date && matches;
  }
  return is_up_to_date;
}

bool MaySkip() {
  const char* skip_bpf = getenv("HEAPTAP_SKIP_BPF");
  return geteuid() != 0 || (skip_bpf != nullptr && strcmp(skip_bpf, "1") == 0);
}

}  // namespace

// Called first, if a program of tests has it. It may end the process, which then was started for another purpose.
__attribute__((weak)) void BeforeTests(int argc, char** argv);

int main(int argc, char** argv) {
  if (BeforeTests != nullptr) BeforeTests(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  if (!IsFilterUpToDate()) return kBadUsage;
  auto* watchdog = new Watchdog;
  ::testing::UnitTest::GetInstance()->listeners().Append(watchdog);  // which owns it
  const int status = RUN_ALL_TESTS();
  if (status != 0 || MaySkip()) return status;
  for (const std::string& name : watchdog->skipped())
    fprintf(stderr, "%s was skipped, although root runs it\n", name.c_str());
  return watchdog->skipped().empty() ? 0 : 1;
}
