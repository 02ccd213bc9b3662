// SPDX-License-Identifier: Apache-2.0
#include "userspace/daemon/daemon.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/api/endpoints.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"
#include "userspace/recording/live_blocks.h"
#include "userspace/recording/profile_plan.h"
#include "userspace/recording/survey_paths.h"
#include "userspace/recording/tally_sums.h"

namespace heaptap::daemon {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);

// A question that must wait, because a user's account has no time left, is asked again after this time.
constexpr absl::Duration kAskAgain = absl::Milliseconds(20);

absl::Status NoAnswer(absl::string_view why) { return absl::UnavailableError(absl::StrCat("the collector ", why)); }

const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& answer) {
  return answer.status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const recording::RecorderOptions& recording,
                                                      const http::ServerOptions& http, const HistoryOptions& history) {
  base::FileDescriptor asked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!asked.valid()) return absl::UnavailableError(absl::StrCat("eventfd: ", strerror(errno)));
  absl::StatusOr<std::unique_ptr<recording::Recorder>> recorder = recording::Recorder::Start(recording);
  if (!recorder.ok()) return recorder.status();
  const bool is_restricted = recording.system_wide.has_value() &&
                             (!recording.system_wide->groups.empty() || recording.system_wide->only_libraries);
  std::unique_ptr<Daemon> daemon(new Daemon(*std::move(recorder), std::move(asked), is_restricted));
  if (!history.path.empty()) daemon->historian_ = std::make_unique<Historian>(*daemon, daemon->crews_, history);
  api::HistoryPlace* place = daemon->historian_ == nullptr ? nullptr : &daemon->historian_->place();
  absl::StatusOr<std::unique_ptr<http::Server>> server =
      http::Server::Start(http, api::MakeHandler(*daemon, daemon->crews_, place));
  if (!server.ok()) {
    if (!daemon->recorder_->took_over()) daemon->recorder_->End();
    return server.status();
  }
  daemon->server_ = *std::move(server);
  return daemon;
}

Daemon::~Daemon() {
  {
    absl::MutexLock lock(&mutex_);
    is_ending_ = true;
  }
  for (const Question& question : waiting_) question(nullptr);
  for (const Question& question : TakeQuestions()) question(nullptr);
  // Clients may wait for the names of functions.
  crews_.Cancel();
  server_ = nullptr;
  historian_ = nullptr;
}

absl::Duration Daemon::patience() const {
  if (recorder_->HasMore()) return absl::ZeroDuration();
  return waiting_.empty() ? recording::Recorder::kPumpInterval : kAskAgain;
}

void Daemon::Work() {
  const base::Instant begin = base::Now();
  // Taken before Pump: an answer includes everything that happened before its question.
  std::vector<Question> questions = std::exchange(waiting_, {});
  std::ranges::move(TakeQuestions(), std::back_inserter(questions));
  recorder_->Pump();
  for (Question& question : questions) {
    if (!question(recorder_.get())) waiting_.push_back(std::move(question));
  }
  if (const base::Instant now = base::Now(); now - ticked_ >= kTick) {
    ticked_ = now;
    recorder_->everyone().Tick(now);
    crews_.EndIdle(now);
  }
  pauses_.Add(begin, base::Now());
}

void Daemon::DumpOne(pid_t pid) {
  const std::optional<profile::ProcessRef> process =
      pid == 0 ? recorder_->queries().LargestProcess() : recorder_->queries().FindProcess(pid);
  if (!process.has_value()) {
    return base::Say(pid == 0 ? "no process is recorded" : absl::StrCat("process ", pid, " is not recorded"));
  }
  if (const absl::Status status = recorder_->queries().DumpOne(*process); !status.ok()) base::Say(status.message());
}

std::vector<Daemon::Question> Daemon::TakeQuestions() {
  eventfd_t count;
  eventfd_read(asked_.get(), &count);
  absl::MutexLock lock(&mutex_);
  return std::exchange(questions_, {});
}

template <typename Answer>
Answer Daemon::Ask(std::function<Answer(recording::Recorder&)> question) {
  struct Shared {
    absl::Mutex mutex;
    std::optional<Answer> answer ABSL_GUARDED_BY(mutex);
    bool is_waited_for ABSL_GUARDED_BY(mutex) = true;
  };
  auto shared = std::make_shared<Shared>();
  {
    absl::MutexLock lock(&mutex_);
    if (is_ending_) return NoAnswer("is shutting down");
    questions_.push_back([shared, question = std::move(question)](recording::Recorder* recorder) {
      {
        absl::MutexLock lock(&shared->mutex);
        if (!shared->is_waited_for) return true;
      }
      Answer answer = recorder == nullptr ? Answer(NoAnswer("is shutting down")) : question(*recorder);
      if (absl::IsResourceExhausted(StatusOf(answer))) return false;
      absl::MutexLock lock(&shared->mutex);
      shared->answer = std::move(answer);
      return true;
    });
  }
  eventfd_write(asked_.get(), 1);
  absl::MutexLock lock(&shared->mutex);
  const auto is_answered = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared->mutex) { return shared->answer.has_value(); };
  base::AwaitUntil(shared->mutex, absl::Condition(&is_answered), base::Now() + kPatience);
  shared->is_waited_for = false;
  if (!shared->answer.has_value()) return NoAnswer("did not answer in time");
  return *std::move(shared->answer);
}

absl::StatusOr<std::unique_lock<std::timed_mutex>> Daemon::WaitToRead() {
  std::unique_lock<std::timed_mutex> lock(reading_, absl::ToChronoMilliseconds(kPatience));
  if (!lock.owns_lock()) return NoAnswer("did not answer in time");
  return lock;
}

absl::StatusOr<std::vector<profile::ProcessSummary>> Daemon::Processes() {
  const auto lock = WaitToRead();
  if (!lock.ok()) return lock.status();
  using Known = std::optional<std::vector<profile::ProcessSummary>>;
  const auto known =
      Ask<absl::StatusOr<Known>>([](recording::Recorder& recorder) { return recorder.queries().PlanSummaries(); });
  if (!known.ok()) return known.status();
  if (known->has_value()) return **known;
  const base::Instant begin = base::Now();
  auto sums = recording::SumAllTallies(recorder_->entries());
  if (!sums.ok()) return sums.status();
  return Ask<absl::StatusOr<std::vector<profile::ProcessSummary>>>(
      [sums = *std::move(sums), cost = base::Now() - begin](recording::Recorder& recorder) {
        return recorder.queries().MakeSummaries(sums, cost);
      });
}

absl::StatusOr<std::optional<uid_t>> Daemon::Owner(const profile::ProcessRef& process) {
  return Ask<absl::StatusOr<std::optional<uid_t>>>(
      [process](recording::Recorder& recorder) { return recorder.queries().Owner(process); });
}

absl::StatusOr<std::vector<profile::EndedProcess>> Daemon::Ended() {
  return Ask<absl::StatusOr<std::vector<profile::EndedProcess>>>([](recording::Recorder& recorder) {
    const std::deque<profile::EndedProcess>& ended = recorder.endings().ended();
    return std::vector<profile::EndedProcess>(ended.begin(), ended.end());
  });
}

absl::StatusOr<profile::Snapshot> Daemon::MakeSnapshot(const profile::ProcessRef& process, bool with_blocks) {
  const auto lock = WaitToRead();
  if (!lock.ok()) return lock.status();
  // Shared, because the recording may answer when this thread waits no longer.
  struct Made {
    recording::ProfilePlan plan;
    recording::BuiltProfile built;
  };
  const auto made = std::make_shared<Made>();
  absl::StatusOr<recording::ProfilePlan> plan = Ask<absl::StatusOr<recording::ProfilePlan>>(
      [process](recording::Recorder& recorder) { return recorder.queries().Plan(process); });
  if (!plan.ok()) return plan.status();
  made->plan = *std::move(plan);
  std::optional<recording::LiveBlocks> blocks;
  if (with_blocks) {
    absl::StatusOr<recording::LiveBlocks> read = recording::ReadLiveBlocks(recorder_->entries(), process.process_id);
    if (!read.ok()) return read.status();
    blocks = *std::move(read);
  }
  absl::StatusOr<recording::BuiltProfile> built =
      recording::BuildPlanned(recorder_->entries(), made->plan, blocks.has_value() ? &*blocks : nullptr);
  if (!built.ok()) return built.status();
  made->built = *std::move(built);
  if (blocks.has_value()) made->built.cost += blocks->cost;
  return Ask<absl::StatusOr<profile::Snapshot>>([made, with_blocks](recording::Recorder& recorder) {
    return recorder.queries().Finish(made->plan, made->built, with_blocks);
  });
}

absl::StatusOr<profile::Snapshot> Daemon::Snapshot(const profile::ProcessRef& process) {
  return MakeSnapshot(process, false);
}

absl::StatusOr<profile::Snapshot> Daemon::DetailedSnapshot(const profile::ProcessRef& process) {
  return MakeSnapshot(process, true);
}

absl::StatusOr<std::string> Daemon::Dump(const profile::ProcessRef& process) {
  absl::StatusOr<profile::Snapshot> snapshot = MakeSnapshot(process, false);
  if (!snapshot.ok()) return snapshot.status();
  const recording::Dumps::Filled filled = recorder_->dumps().Fill(snapshot->profile);
  return Ask<absl::StatusOr<std::string>>(
      [process, filled](recording::Recorder& recorder) { return recorder.queries().Publish(process, filled); });
}

absl::StatusOr<profile::AllocatorFigures> Daemon::Allocator(const profile::ProcessRef& process) {
  return Ask<absl::StatusOr<profile::AllocatorFigures>>(
      [process](recording::Recorder& recorder) { return recorder.queries().ReadAllocatorFigures(process); });
}

absl::StatusOr<profile::ResidentBytes> Daemon::Resident(const profile::ProcessRef& process) {
  return Ask<absl::StatusOr<profile::ResidentBytes>>(
      [process](recording::Recorder& recorder) { return recorder.queries().Resident(process); });
}

absl::Status Daemon::SetActive(const profile::ProcessRef& process, bool active) {
  return Ask<absl::Status>(
      [process, active](recording::Recorder& recorder) { return recorder.queries().SetActive(process, active); });
}

absl::Status Daemon::SetRate(const profile::ProcessRef& process, std::optional<uint32_t> lg_sample) {
  return Ask<absl::Status>(
      [process, lg_sample](recording::Recorder& recorder) { return recorder.queries().SetRate(process, lg_sample); });
}

absl::StatusOr<profile::Survey> Daemon::Survey(const profile::Activities& known, absl::Duration interval,
                                               bool with_paths) {
  absl::StatusOr<profile::Survey> taken = Ask<absl::StatusOr<profile::Survey>>(
      [known, interval](recording::Recorder& recorder) { return recorder.surveys().Take(known, interval); });
  if (!taken.ok()) return taken;
  if (!with_paths) {
    for (profile::SurveyedProcess& process : taken->processes) process.is_changed = false;
    return taken;
  }
  if (absl::Status status = recording::ReadPaths(recorder_->entries(), *taken); !status.ok()) return status;
  // Shared, because the recording may answer when this thread waits no longer.
  const auto shared = std::make_shared<profile::Survey>(*std::move(taken));
  return Ask<absl::StatusOr<profile::Survey>>([shared](recording::Recorder& recorder) {
    recorder.surveys().ForgetEnded(*shared);
    return std::move(*shared);
  });
}

absl::StatusOr<profile::SurveyedStacks> Daemon::Stacks(const profile::ProcessRef& process,
                                                       const std::vector<uint64_t>& stack_ids) {
  return Ask<absl::StatusOr<profile::SurveyedStacks>>(
      [process, stack_ids](recording::Recorder& recorder) { return recorder.surveys().Stacks(process, stack_ids); });
}

absl::Status Daemon::Settle() {
  const base::Instant end = base::Now() + kPatience;
  absl::Status settled = Ask<absl::Status>([](recording::Recorder& recorder) {
    // The question is asked again after the next Pump.
    if (!recorder.IsSettled()) return absl::ResourceExhaustedError("not settled");
    recorder.queries().ForgetSummaries(base::Instant::InfiniteFuture());
    return absl::OkStatus();
  });
  if (!settled.ok() || historian_ == nullptr || historian_->WriteNow(end)) return settled;
  return NoAnswer("did not write the history");
}

absl::StatusOr<profile::CollectorFigures> Daemon::Figures() {
  absl::StatusOr<std::vector<profile::ProcessSummary>> processes = Processes();
  if (!processes.ok()) return processes.status();
  return Ask<absl::StatusOr<profile::CollectorFigures>>(
      [this, processes = *std::move(processes)](recording::Recorder& recorder) {
        profile::CollectorFigures figures = recorder.Figures(processes);
        figures.longest_pause = pauses_.Longest(base::Now());
        return figures;
      });
}

}  // namespace heaptap::daemon
