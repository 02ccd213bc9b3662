// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/recording.h"

#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "heaptap/contract.h"
#include "userspace/base/clock.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/cli/show/short_report.h"
#include "userspace/formats/gperftools_heap.h"
#include "userspace/targets/policy.h"

namespace heaptap::cli {
namespace {

constexpr char kHeapV2[] = "heap_v2";
constexpr char kGperftools[] = "gperftools";

// Sparse samples need only a small map of live objects: a million samples 512 KiB apart are half a terabyte, and an
// empty map takes 16 bytes for each possible entry. They also need only a small ring buffer of raw stacks, which is
// allocated at once: few samples are taken in the milliseconds before an unwind table is loaded.
constexpr uint32_t kDenseLgSample = 12;
constexpr uint32_t kSparseLive = 1 << 20;
constexpr uint32_t kSparseRawStacks = 4 << 20;
// Holds two raw stacks of any size.
constexpr uint32_t kMinRawStacks = 128 << 10;

// The empty map for this much takes 256 MiB.
constexpr uint64_t kMaxUnwindMemory = uint64_t{64} << 30;

constexpr int kNiceness = -20;

constexpr int kDefaultHighWaterPercent = 20;
// Larger values are mistakes: this is a factor of ten thousand.
constexpr int kMaxHighWaterPercent = 1000000;

absl::Status SetMapSize(const std::string& text, bpf::MapSizes& sizes) {
  const std::pair<std::string, std::string> pair = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const std::pair<const char*, uint32_t*> known[] = {
      {"processes", &sizes.processes}, {"stacks", &sizes.stacks},
      {"live", &sizes.live},           {"tallies", &sizes.tallies},
      {"losses", &sizes.losses},       {"events", &sizes.events_bytes},
      {"files", &sizes.files},         {"names", &sizes.names},
      {"records", &sizes.records},     {"raw-stacks", &sizes.raw_stacks_bytes},
  };
  for (const auto& [name, size] : known) {
    if (pair.first == name && absl::SimpleAtoi(pair.second, size) && *size > 0) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--map-size ", text,
                   ": expected NAME=N, where NAME is processes, stacks, live, tallies, losses, files, names or "
                   "records (N entries), or events or raw-stacks (N bytes, a power of two)"));
}

}  // namespace

void AddRecordingOptions(Command command, RecordingFlags& flags) {
  command
      .Add("-o,--output", flags.prefix, "start the names of dumps with PREFIX (default: jeprof, in the current folder)")
      .Type("PREFIX");
  AddShortReportOption(command, flags.report);
  AddSamplingOptions(command, flags);
  command.AddFlag("--report-each", flags.reports_each,
                  "with --exact: have each allocation reported to the kernel, also at call paths that are known");
}

void AddSamplingOptions(Command command, RecordingFlags& flags) {
  command
      .Add("--format", flags.format,
           "choose the format of dumps: heap_v2 (default; jemalloc's, for jeprof) or gperftools (for google-pprof and "
           "go tool pprof)")
      .OneOf({kHeapV2, kGperftools});
  const Option rate = command
                          .Add("--lg-sample", flags.lg_sample,
                               "take a sample every 2^N bytes on average (default: 19, or lg_prof_sample of "
                               "MALLOC_CONF)")
                          .Type("N")
                          .Range(0, HEAPTAP_MAX_LG_SAMPLE);
  command.AddFlag("--exact", flags.exact, "record every allocation (same as --lg-sample 0)").Excludes(rate);
  command
      .AddFlag("--high-water", kDefaultHighWaterPercent, flags.high_water_percent,
               "also dump when live memory exceeds its last maximum by PERCENT (--high-water=PERCENT, default: 20; "
               "from 1 MiB on)")
      .Type("PERCENT")
      .Range(1, kMaxHighWaterPercent);
  command.Add("--interval", flags.interval, "also dump after every BYTES allocated (K, M, G are binary)")
      .Type("BYTES")
      .Bytes();
  command
      .Add("--unwind-memory", flags.unwind_memory,
           "limit the kernel memory for unwind tables (default: 256M; K, M, G are binary)")
      .Type("BYTES")
      .Bytes();
  command.AddFlag("--books", flags.books,
                  "print the totals of each process's samples and losses at its end, as a line of JSON on stderr");
  command.Add("--map-size", flags.map_sizes, "set the size of a kernel map").Type("NAME=N");
}

absl::StatusOr<recording::RecorderOptions> MakeRecorderOptions(const RecordingFlags& flags) {
  recording::RecorderOptions options;
  if (!flags.prefix.empty()) {
    options.prefix = flags.prefix;
    options.prefix_given = true;
  }
  if (flags.format == kGperftools) options.format = formats::GperftoolsHeap;
  if (flags.exact) options.policy.lg_sample = 0;
  if (flags.lg_sample >= 0) options.policy.lg_sample = static_cast<uint32_t>(flags.lg_sample);
  if (flags.high_water_percent > 0) {
    options.policy.triggers.first_high_water = recording::kFirstHighWater;
    options.policy.triggers.high_water_percent = static_cast<uint32_t>(flags.high_water_percent);
  }
  // A negative number is parsed as a huge one.
  if (flags.interval == 0 || flags.interval > static_cast<uint64_t>(INT64_MAX)) {
    return absl::InvalidArgumentError("--interval: expected 1 to 2^63 - 1 bytes");
  }
  options.policy.triggers.interval = flags.interval.value_or(0);
  const bool is_exact = options.policy.lg_sample == 0u;
  if (flags.reports_each && !is_exact) {
    return absl::InvalidArgumentError("--report-each: only with --exact; other recordings report each sample");
  }
  // The kernel sees maxima and intervals, so it must be told of each allocation.
  const bool needs_each = flags.high_water_percent > 0 || flags.interval.has_value();
  options.counts = is_exact && !needs_each && !flags.reports_each;
  options.show_books = flags.books;
  if (!options.policy.lg_sample.has_value() || *options.policy.lg_sample > kDenseLgSample) {
    options.map_sizes.live = kSparseLive;
    options.map_sizes.raw_stacks_bytes = kSparseRawStacks;
  }
  if (flags.unwind_memory == 0 || flags.unwind_memory > kMaxUnwindMemory) {
    return absl::InvalidArgumentError("--unwind-memory: expected 1 byte to 64G");
  }
  options.map_sizes.unwind_bytes = flags.unwind_memory.value_or(HEAPTAP_DEFAULT_UNWIND_BYTES);
  for (const std::string& text : flags.map_sizes) {
    if (absl::Status status = SetMapSize(text, options.map_sizes); !status.ok()) return status;
  }
  if (options.map_sizes.raw_stacks_bytes < kMinRawStacks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--map-size raw-stacks: expected at least ", kMinRawStacks, " bytes"));
  }
  return options;
}

absl::Status RightsFirst(const absl::Status& status, absl::string_view command) {
  const std::string missing = bpf::MissingCapabilities();
  if (!absl::IsFailedPrecondition(status) || missing.empty()) return status;
  return absl::PermissionDeniedError(absl::StrCat("missing rights: run ", command, " as root, or give it ", missing));
}

Signals::Signals(std::initializer_list<int> numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) {
    // nohup ignores SIGHUP, and so must we.
    struct sigaction inherited;
    const bool is_ignored = sigaction(number, nullptr, &inherited) == 0 && inherited.sa_handler == SIG_IGN;
    if (number != SIGHUP || !is_ignored) sigaddset(&set, number);
  }
  sigprocmask(SIG_BLOCK, &set, &before_);
  for (const auto& [number, disposition] : {std::pair(SIGXFSZ, SIG_IGN), {SIGPIPE, SIG_IGN}, {SIGCHLD, SIG_DFL}}) {
    dispositions_before_.emplace_back(number, signal(number, disposition));
  }
  fd_.Reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.valid()) status_ = bpf::KernelError(errno, "signalfd");
}

Signals::~Signals() { Restore(); }

void Signals::Restore() const {
  for (const auto& [number, disposition] : dispositions_before_) signal(number, disposition);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<signalfd_siginfo> Signals::Take() {
  std::vector<signalfd_siginfo> signals;
  signalfd_siginfo info;
  while (read(fd_.get(), &info, sizeof(info)) == sizeof(info)) signals.push_back(info);
  return signals;
}

Priority::Priority() : before_(getpriority(PRIO_PROCESS, 0)) { setpriority(PRIO_PROCESS, 0, kNiceness); }

void Priority::Restore() const { setpriority(PRIO_PROCESS, 0, before_); }

bool IsReadable(int fd) {
  pollfd polled = {fd, POLLIN, 0};
  return poll(&polled, 1, 0) == 1;
}

void WaitFor(const std::vector<int>& fds, base::Instant end) {
  std::vector<pollfd> polled;
  polled.reserve(fds.size());
  for (const int fd : fds) polled.push_back({fd, POLLIN, 0});
  base::PollUntil(absl::MakeSpan(polled), end);
}

void WaitForWork(const recording::Recorder& recorder, const std::vector<int>& others, absl::Duration limit) {
  if (recorder.HasMore()) return;
  const base::Instant end = base::Now() + limit;
  std::vector<int> urgent = recorder.fds();
  urgent.insert(urgent.end(), others.begin(), others.end());
  std::vector<int> all = recorder.mapping_fds();
  all.insert(all.end(), urgent.begin(), urgent.end());
  WaitFor(all, end);
  const base::Instant due = std::min(end, recorder.pumped() + recording::Recorder::kMappingInterval);
  if (due > base::Now()) WaitFor(urgent, due);
}

void WaitAndPump(recording::Recorder& recorder, const std::vector<int>& fds, absl::Duration limit) {
  WaitForWork(recorder, fds, std::min(limit, recording::Recorder::kPumpInterval));
  recorder.Pump();
}

}  // namespace heaptap::cli
