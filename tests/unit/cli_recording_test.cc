// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/cli/recording.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/formats/gperftools_heap.h"
#include "userspace/formats/heap_v2.h"

namespace heaptap::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Parses a command line. What the parser refuses is InvalidArgument too.
absl::StatusOr<recording::RecorderOptions> Parse(std::vector<std::string> words) {
  CommandLine line;
  RecordingFlags flags;
  AddRecordingOptions(line.AddCommand("test", ""), flags);
  words.insert(words.begin(), "test");
  if (absl::Status status = line.Parse(std::move(words)); !status.ok()) return status;
  return MakeRecorderOptions(flags);
}

recording::RecorderOptions MustParse(const std::vector<std::string>& words) {
  absl::StatusOr<recording::RecorderOptions> options = Parse(words);
  EXPECT_TRUE(options.ok()) << options.status();
  return options.ok() ? *std::move(options) : recording::RecorderOptions();
}

TEST(RecordingOptions, Defaults) {
  const recording::RecorderOptions options = MustParse({});
  EXPECT_EQ(options.prefix, "jeprof");
  EXPECT_FALSE(options.prefix_given);
  EXPECT_EQ(options.format, &formats::HeapV2);
  EXPECT_FALSE(options.policy.lg_sample.has_value());
  EXPECT_EQ(options.policy.triggers.first_high_water, 0);
  EXPECT_EQ(options.policy.triggers.interval, 0);
  EXPECT_FALSE(options.show_books);
}

TEST(RecordingOptions, Prefix) {
  EXPECT_EQ(MustParse({"-o", "a/b"}).prefix, "a/b");
  EXPECT_TRUE(MustParse({"--output=jeprof"}).prefix_given);
}

TEST(RecordingOptions, Rate) {
  EXPECT_EQ(MustParse({"--lg-sample", "12"}).policy.lg_sample, 12);
  EXPECT_EQ(MustParse({"--lg-sample", "0"}).policy.lg_sample, 0);
  EXPECT_EQ(MustParse({"--lg-sample", "46"}).policy.lg_sample, 46);
  EXPECT_EQ(MustParse({"--exact"}).policy.lg_sample, 0);
  for (const char* word : {"-1", "47", "x", "1.5", ""}) EXPECT_FALSE(Parse({"--lg-sample", word}).ok()) << word;
  EXPECT_FALSE(Parse({"--exact", "--lg-sample", "3"}).ok()) << "which of the two?";
}

TEST(RecordingOptions, Format) {
  EXPECT_EQ(MustParse({"--format", "gperftools"}).format, &formats::GperftoolsHeap);
  EXPECT_EQ(MustParse({"--format", "heap_v2"}).format, &formats::HeapV2);
  EXPECT_FALSE(Parse({"--format", "pdf"}).ok());
}

TEST(RecordingOptions, Triggers) {
  EXPECT_EQ(MustParse({"--high-water"}).policy.triggers.high_water_percent, 20);
  EXPECT_GT(MustParse({"--high-water"}).policy.triggers.first_high_water, 0);
  EXPECT_EQ(MustParse({"--high-water=5"}).policy.triggers.high_water_percent, 5);
  for (const char* word : {"--high-water=0", "--high-water=-1", "--high-water=x"})
    EXPECT_FALSE(Parse({word}).ok()) << word;
  EXPECT_EQ(MustParse({"--interval", "4096"}).policy.triggers.interval, 4096);
  EXPECT_EQ(MustParse({"--interval", "2M"}).policy.triggers.interval, 2 << 20);
  EXPECT_EQ(MustParse({"--interval", "1g"}).policy.triggers.interval, 1 << 30);
  for (const char* word : {"0", "-1", "x", ""}) EXPECT_FALSE(Parse({"--interval", word}).ok()) << word;
}

TEST(RecordingOptions, MapSizes) {
  const recording::RecorderOptions options = MustParse({"--map-size", "live=10", "--map-size", "events=4096"});
  EXPECT_EQ(options.map_sizes.live, 10);
  EXPECT_EQ(options.map_sizes.events_bytes, 4096);
  EXPECT_EQ(options.map_sizes.stacks, bpf::MapSizes().stacks);
  for (const char* word : {"live", "live=", "live=0", "live=-1", "live=x", "live=4294967296", "lives=1", "=1"}) {
    const absl::Status status = Parse({"--map-size", word}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << word;
  }
}

TEST(ExitStatus, OfErrors) {
  EXPECT_EQ(Report(absl::OkStatus()), 0);
  EXPECT_EQ(Report(absl::FailedPreconditionError("test: this line is expected")), 1);
  EXPECT_EQ(Report(absl::InvalidArgumentError("test: this line is expected")), 2);
  EXPECT_EQ(Report(absl::NotFoundError("test: this line is expected")), 3);
  EXPECT_EQ(Report(absl::PermissionDeniedError("test: this line is expected")), 4);
}

sigset_t Mask() {
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  return mask;
}

TEST(SignalsTest, AreTakenAndPutBack) {
  {
    Signals signals({SIGUSR1, SIGUSR2});
    EXPECT_TRUE(signals.Take().empty());
    raise(SIGUSR2);
    const std::vector<signalfd_siginfo> taken = signals.Take();
    ASSERT_THAT(taken, SizeIs(1));
    EXPECT_EQ(taken[0].ssi_signo, SIGUSR2);
    EXPECT_TRUE(signals.Take().empty());
  }
  const sigset_t mask = Mask();
  EXPECT_FALSE(sigismember(&mask, SIGUSR1));
}

// Runs `behaviour` in a child and returns its wait status.
template <typename Behaviour>
int StatusOf(Behaviour behaviour) {
  const pid_t pid = fork();
  if (pid == 0) _exit(behaviour());
  int status = -1;
  waitpid(pid, &status, 0);
  return status;
}

TEST(SignalsTest, AClosedPipeIsAnError) {
  EXPECT_EQ(StatusOf([] {
              int ends[2];
              if (pipe(ends) != 0) return 1;
              close(ends[0]);
              {
                Signals signals({SIGUSR1});
                if (write(ends[1], "x", 1) != -1 || errno != EPIPE) return 2;
              }
              return 0;
            }),
            0);
}

TEST(SignalsTest, AFileSizeLimitIsAnError) {
  EXPECT_EQ(StatusOf([] {
              const rlimit limit = {10, 10};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              const int fd = open("/tmp", O_TMPFILE | O_WRONLY, 0600);
              Signals signals({SIGUSR1});
              return pwrite(fd, "x", 1, 100) == -1 && errno == EFBIG ? 0 : 2;
            }),
            0);
}

TEST(SignalsTest, AChildGetsWhatWasInherited) {
  // Servers in other tests ignore it.
  signal(SIGPIPE, SIG_DFL);
  const int status = StatusOf([] {
    signal(SIGPIPE, SIG_DFL);
    Signals signals({SIGTERM});
    signals.Restore();
    raise(SIGTERM);
    return 1;
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
  EXPECT_EQ(WTERMSIG(StatusOf([] {
              Signals signals({SIGTERM});
              signals.Restore();
              raise(SIGPIPE);
              return 1;
            })),
            SIGPIPE);
}

// The state that a parent leaves which ignores SIGCHLD.
TEST(SignalsTest, ChildrenCanBeWaitedFor) {
  EXPECT_EQ(StatusOf([] {
              signal(SIGCHLD, SIG_IGN);
              Signals signals({SIGCHLD});
              const pid_t pid = fork();
              if (pid == 0) _exit(3);
              int status = 0;
              return waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3 ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace heaptap::cli
