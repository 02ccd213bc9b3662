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
#include "userspace/base/mutex.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"
#include "userspace/profiles/live_blocks.h"
#include "userspace/profiles/profile_plan.h"
#include "userspace/profiles/survey_paths.h"
#include "userspace/profiles/tally_sums.h"

namespace heaptap::daemon {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);

// How old the facts in the history may be, such as the service of a process that has changed its service. Reading the
// facts of all processes for each point would cost more than the point.
constexpr absl::Duration kFactsOfHistory = absl::Minutes(10);

// A question that has no answer yet is asked again after this time.
constexpr absl::Duration kAskAgain = absl::Milliseconds(20);

absl::Status NoAnswer(absl::string_view why) { return absl::UnavailableError(absl::StrCat("the collector ", why)); }

const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& answer) {
  return answer.status();
}

// About what a profile takes in memory, or as text if that is more.
uint64_t MemoryOf(const profile::Profile& profile) {
  constexpr uint64_t kBytesOfFrame = 20;  // "0x7fffffffffff " and more
  constexpr uint64_t kBytesOfContext = 200;
  uint64_t bytes = 0;
  for (const profile::Context& context : profile.contexts) {
    bytes += kBytesOfContext + context.frames.size() * kBytesOfFrame +
             context.threads.size() * sizeof(profile::ThreadShare) +
             context.blocks.size() * sizeof(profile::BlockShare);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const recording::RecorderOptions& recording,
                                                      const http::ServerOptions& http, const HistoryOptions& history) {
  absl::StatusOr<std::unique_ptr<recording::Recorder>> recorder = recording::Recorder::Start(recording);
  if (!recorder.ok()) return recorder.status();
  const bool is_restricted = recording.system_wide.has_value() &&
                             (!recording.system_wide->groups.empty() || recording.system_wide->only_libraries);
  return Start(*std::move(recorder), is_restricted, http, history);
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(std::unique_ptr<recording::Recorder> recorder, bool is_restricted,
                                                      const http::ServerOptions& http, const HistoryOptions& history) {
  base::FileDescriptor asked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!asked.valid()) return absl::UnavailableError(absl::StrCat("eventfd: ", strerror(errno)));
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(recorder), std::move(asked), is_restricted));
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
    base::MutexLock lock(&mutex_);
    is_ending_ = true;
  }
  for (const Question& question : waiting_) question(nullptr);
  for (const Question& question : TakeQuestions()) question(nullptr);
  // Clients may wait for the names of functions.
  crews_.Cancel();
  server_ = nullptr;
  historian_ = nullptr;
}

absl::Duration Daemon::patience() const { return waiting_.empty() ? recording::Recorder::kPumpInterval : kAskAgain; }

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
  const base::Instant end = base::Now();
  pauses_.Add(begin, end);
  worked_ = end.nanoseconds();
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
  base::MutexLock lock(&mutex_);
  return std::exchange(questions_, {});
}

template <typename Answer>
Answer Daemon::Ask(std::function<Answer(recording::Recorder&)> question, http::Asker* asker) {
  return AskLater<Answer>(
      [question = std::move(question)](recording::Recorder& recorder, const std::function<void(Answer)>& done) {
        done(question(recorder));
      },
      asker);
}

template <typename Answer>
Answer Daemon::AskLater(LaterQuestion<Answer> question, http::Asker* asker) {
  struct Shared {
    base::Mutex mutex{base::LockRank::kQuestion};
    absl::Duration used ABSL_GUARDED_BY(mutex) = {};
    std::optional<Answer> answer ABSL_GUARDED_BY(mutex);
    bool is_being_asked ABSL_GUARDED_BY(mutex) = false;
    bool is_under_way ABSL_GUARDED_BY(mutex) = false;  // asked, and the answer has not come
    bool is_waited_for ABSL_GUARDED_BY(mutex) = true;
  };
  auto shared = std::make_shared<Shared>();
  const auto done = [shared](Answer answer) {
    base::MutexLock lock(&shared->mutex);
    shared->is_under_way = false;
    if (!absl::IsResourceExhausted(StatusOf(answer))) shared->answer = std::move(answer);
  };
  {
    base::MutexLock lock(&mutex_);
    if (is_ending_) return NoAnswer("is shutting down");
    questions_.push_back([shared, done, question = std::move(question)](recording::Recorder* recorder) {
      {
        base::MutexLock lock(&shared->mutex);
        if (recorder == nullptr && !shared->answer.has_value()) shared->answer = Answer(NoAnswer("is shutting down"));
        if (!shared->is_waited_for || shared->answer.has_value()) return true;
        if (shared->is_under_way) return false;
        shared->is_being_asked = shared->is_under_way = true;
      }
      const base::Instant begin = base::Now();
      question(*recorder, done);
      base::MutexLock lock(&shared->mutex);
      shared->used += base::Now() - begin;
      shared->is_being_asked = false;
      return shared->answer.has_value();
    });
  }
  eventfd_write(asked_.get(), 1);
  base::MutexLock lock(&shared->mutex);
  const auto is_answered = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared->mutex) {
    return shared->answer.has_value() && !shared->is_being_asked;
  };
  base::AwaitUntil(shared->mutex, absl::Condition(&is_answered), base::Now() + kPatience);
  shared->is_waited_for = false;
  if (asker != nullptr) asker->Charge(shared->used);
  if (!shared->answer.has_value()) return NoAnswer("did not answer in time");
  return *std::move(shared->answer);
}

absl::StatusOr<std::vector<profile::ProcessSummary>> Daemon::Processes(http::Asker& asker) {
  // What is known, or the task to sum up the tallies, which is given up when `summing` is destroyed.
  struct Plan {
    std::optional<std::vector<profile::ProcessSummary>> known;
    std::shared_ptr<const int> summing;
  };
  // Shared, because the recording may answer when this thread waits no longer.
  const auto plan = std::make_shared<Plan>();
  const absl::Status planned = Ask<absl::Status>([this, plan](recording::Recorder& recorder) {
    if (plan->summing == nullptr) {
      if (!summing_.expired()) return absl::ResourceExhaustedError("another client sums up");
      plan->known = recorder.queries().PlanSummaries();
      if (plan->known.has_value()) return absl::OkStatus();
      plan->summing = std::make_shared<const int>();
      summing_ = plan->summing;
    }
    if (recorder.queries().HasPlannedSummaries(base::Now())) return absl::OkStatus();
    return absl::ResourceExhaustedError("processes are asked for what they have freed");
  });
  if (!planned.ok()) return planned;
  if (plan->known.has_value()) return *std::move(plan->known);
  if (absl::Status paid = asker.Pay(); !paid.ok()) return paid;
  const base::Instant begin = base::Now();
  auto sums = recording::SumAllTallies(recorder_->entries());
  // The asker does not pay: the tallies are those of all processes, whoever asks, and Queries bounds how often they are
  // summed up.
  asker.ChargeAtMost(absl::ZeroDuration());
  if (!sums.ok()) return sums.status();
  return Ask<absl::StatusOr<std::vector<profile::ProcessSummary>>>(
      [sums = *std::move(sums), cost = base::Now() - begin](recording::Recorder& recorder) {
        return recorder.queries().MakeSummaries(sums, cost);
      });
}

absl::Status Daemon::Health() const {
  if (base::Now() < base::Instant::FromNanoseconds(worked_) + kPatience) return absl::OkStatus();
  return NoAnswer("does not work");
}

absl::StatusOr<profile::NamedProcess> Daemon::Find(pid_t pid, http::Asker& asker) {
  return Ask<absl::StatusOr<profile::NamedProcess>>(
      [pid, asked = base::Now()](recording::Recorder& recorder) { return recorder.queries().Find(pid, asked); },
      &asker);
}

absl::StatusOr<std::optional<uid_t>> Daemon::Owner(const profile::ProcessRef& process) {
  return Ask<absl::StatusOr<std::optional<uid_t>>>([process, asked = base::Now()](recording::Recorder& recorder) {
    return recorder.queries().Owner(process, asked);
  });
}

absl::StatusOr<std::vector<profile::EndedProcess>> Daemon::Ended() {
  return Ask<absl::StatusOr<std::vector<profile::EndedProcess>>>([](recording::Recorder& recorder) {
    const std::deque<profile::EndedProcess>& ended = recorder.endings().ended();
    return std::vector<profile::EndedProcess>(ended.begin(), ended.end());
  });
}

absl::StatusOr<profile::Snapshot> Daemon::MakeSnapshot(const profile::ProcessRef& process, bool with_blocks,
                                                       http::Asker& asker) {
  // Shared, because the recording may answer when this thread waits no longer.
  struct Made {
    recording::ProfilePlan plan;
    std::shared_ptr<recording::BuiltProfile> built = std::make_shared<recording::BuiltProfile>();
    std::optional<recording::Queries::CoverageFacts> coverage;
  };
  const auto made = std::make_shared<Made>();
  absl::StatusOr<recording::ProfilePlan> plan = AskLater<absl::StatusOr<recording::ProfilePlan>>(
      [process](recording::Recorder& recorder, const recording::Queries::PlanDone& done) {
        recorder.queries().Plan(process, done);
      },
      &asker);
  if (!plan.ok()) return plan.status();
  made->plan = *std::move(plan);
  if (absl::Status room = asker.WaitForRoom(base::Now() + kPatience); !room.ok()) return room;
  {
    const base::Turns::Turn turn = reading_.Wait(asker.user(), base::Now() + kPatience);
    if (turn == nullptr) return NoAnswer("did not answer in time");
    // The user's other clients may have used up the time since this one began to wait.
    if (absl::Status paid = asker.Pay(); !paid.ok()) return paid;
    std::optional<recording::LiveBlocks> blocks;
    if (with_blocks) {
      absl::StatusOr<recording::LiveBlocks> read = recording::ReadLiveBlocks(recorder_->entries(), process.process_id);
      if (!read.ok()) return read.status();
      blocks = *std::move(read);
    }
    absl::StatusOr<recording::BuiltProfile> built =
        recording::BuildPlanned(recorder_->entries(), made->plan, blocks.has_value() ? &*blocks : nullptr);
    if (!built.ok()) return built.status();
    *made->built = *std::move(built);
    if (blocks.has_value()) made->built->cost += blocks->cost;
    asker.ChargeAtMost(made->built->cost);
    asker.AddProfile(MemoryOf(made->built->profile));
  }
  if (with_blocks) {
    using Answer = absl::StatusOr<recording::Queries::CoverageFacts>;
    Answer facts = AskLater<Answer>(
        [process](recording::Recorder& recorder, std::function<void(Answer)> done) {
          recorder.queries().ReadCoverage(process, std::move(done));
        },
        &asker);
    if (!facts.ok()) return facts.status();
    made->coverage = *facts;
  }
  return AskLater<absl::StatusOr<profile::Snapshot>>(
      [made](recording::Recorder& recorder, const recording::Queries::FinishDone& done) {
        recorder.queries().Finish(made->plan, made->built, made->coverage, done);
      },
      &asker);
}

absl::StatusOr<profile::Snapshot> Daemon::Snapshot(const profile::ProcessRef& process, http::Asker& asker) {
  return MakeSnapshot(process, false, asker);
}

absl::StatusOr<profile::Snapshot> Daemon::DetailedSnapshot(const profile::ProcessRef& process, http::Asker& asker) {
  return MakeSnapshot(process, true, asker);
}

absl::StatusOr<std::string> Daemon::Dump(const profile::ProcessRef& process, http::Asker& asker) {
  absl::StatusOr<profile::Snapshot> snapshot = MakeSnapshot(process, false, asker);
  if (!snapshot.ok()) return snapshot.status();
  const recording::Dumps::Filled filled = recorder_->dumps().Fill(snapshot->profile);
  return Ask<absl::StatusOr<std::string>>(
      [process, filled](recording::Recorder& recorder) { return recorder.queries().Publish(process, filled); }, &asker);
}

absl::StatusOr<profile::AllocatorFigures> Daemon::Allocator(const profile::ProcessRef& process) {
  using Answer = absl::StatusOr<profile::AllocatorFigures>;
  return AskLater<Answer>([process](recording::Recorder& recorder, std::function<void(Answer)> done) {
    recorder.queries().ReadAllocatorFigures(process, std::move(done));
  });
}

absl::StatusOr<profile::ResidentBytes> Daemon::Resident(const profile::ProcessRef& process, http::Asker& asker) {
  using Answer = absl::StatusOr<profile::ResidentBytes>;
  return AskLater<Answer>(
      [process](recording::Recorder& recorder, std::function<void(Answer)> done) {
        recorder.queries().Resident(process, std::move(done));
      },
      &asker);
}

absl::Status Daemon::SetActive(const profile::ProcessRef& process, bool active) {
  return AskLater<absl::Status>(
      [process, active](recording::Recorder& recorder, std::function<void(absl::Status)> done) {
        recorder.queries().SetActive(process, active, std::move(done));
      });
}

absl::Status Daemon::SetRate(const profile::ProcessRef& process, std::optional<uint32_t> lg_sample) {
  return AskLater<absl::Status>(
      [process, lg_sample](recording::Recorder& recorder, std::function<void(absl::Status)> done) {
        recorder.queries().SetRate(process, lg_sample, std::move(done));
      });
}

absl::StatusOr<profile::Survey> Daemon::Survey(const profile::Activities& known, absl::Duration interval,
                                               bool with_paths) {
  absl::StatusOr<profile::Survey> taken = Ask<absl::StatusOr<profile::Survey>>(
      [known, interval](recording::Recorder& recorder) -> absl::StatusOr<profile::Survey> {
        if (!recorder.readings().Refresh(base::Now(), kFactsOfHistory))
          return absl::ResourceExhaustedError("processes are being read");
        return recorder.surveys().Take(known, interval);
      });
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
  return AskLater<absl::StatusOr<profile::SurveyedStacks>>(
      [process, stack_ids](recording::Recorder& recorder, const recording::Surveys::StacksDone& done) {
        recorder.surveys().Stacks(process, stack_ids, done);
      });
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

absl::StatusOr<profile::CollectorFigures> Daemon::Figures(http::Asker& asker) {
  absl::StatusOr<std::vector<profile::ProcessSummary>> processes = Processes(asker);
  if (!processes.ok()) return processes.status();
  return Ask<absl::StatusOr<profile::CollectorFigures>>(
      [this, processes = *std::move(processes)](recording::Recorder& recorder) {
        profile::CollectorFigures figures = recorder.Figures(processes);
        figures.longest_pause = pauses_.Longest(base::Now());
        return figures;
      });
}

}  // namespace heaptap::daemon
