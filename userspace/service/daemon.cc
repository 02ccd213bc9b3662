// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/daemon.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/service/messages.h"

namespace heaptap::service {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);

absl::Status NoAnswer(absl::string_view why) { return absl::UnavailableError(absl::StrCat("the collector ", why)); }

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const RecorderOptions& recording, const HttpOptions& http) {
  absl::StatusOr<std::unique_ptr<Recorder>> recorder = Recorder::Start(recording);
  if (!recorder.ok()) return recorder.status();
  elf::FileDescriptor asked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!asked.valid()) return absl::UnavailableError(absl::StrCat("eventfd: ", strerror(errno)));
  std::unique_ptr<Daemon> daemon(new Daemon(*std::move(recorder), std::move(asked)));
  absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Start(http, *daemon);
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
  for (const Question& question : TakeQuestions()) question(nullptr);
  server_ = nullptr;
}

std::vector<int> Daemon::fds() const {
  std::vector<int> fds = recorder_->fds();
  fds.push_back(asked_.get());
  return fds;
}

void Daemon::Work() {
  // Taken before Pump: an answer includes everything that happened before its question.
  const std::vector<Question> questions = TakeQuestions();
  recorder_->Pump();
  for (const Question& question : questions) question(recorder_.get());
  const absl::Time now = absl::Now();
  if (now - ticked_ < kTick) return;
  ticked_ = now;
  recorder_->Tick(now);
}

void Daemon::DumpOne(pid_t pid) {
  if (pid == 0) pid = recorder_->LargestProcess();
  if (pid == 0) return Say("no process is recorded");
  // Errors of the dump itself are already printed.
  const absl::Status status = recorder_->DumpOne(pid).status();
  if (absl::IsNotFound(status)) Say(status.message());
}

std::vector<Daemon::Question> Daemon::TakeQuestions() {
  eventfd_t count;
  eventfd_read(asked_.get(), &count);
  absl::MutexLock lock(&mutex_);
  return std::exchange(questions_, {});
}

template <typename Answer>
Answer Daemon::Ask(std::function<Answer(Recorder&)> question) {
  struct Shared {
    absl::Mutex mutex;
    std::optional<Answer> answer ABSL_GUARDED_BY(mutex);
    bool is_waited_for ABSL_GUARDED_BY(mutex) = true;
  };
  auto shared = std::make_shared<Shared>();
  {
    absl::MutexLock lock(&mutex_);
    if (is_ending_) return NoAnswer("is shutting down");
    questions_.push_back([shared, question = std::move(question)](Recorder* recorder) {
      {
        absl::MutexLock lock(&shared->mutex);
        if (!shared->is_waited_for) return;
      }
      Answer answer = recorder == nullptr ? Answer(NoAnswer("is shutting down")) : question(*recorder);
      absl::MutexLock lock(&shared->mutex);
      shared->answer = std::move(answer);
    });
  }
  eventfd_write(asked_.get(), 1);
  absl::MutexLock lock(&shared->mutex);
  const auto is_answered = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared->mutex) { return shared->answer.has_value(); };
  shared->mutex.AwaitWithTimeout(absl::Condition(&is_answered), kPatience);
  shared->is_waited_for = false;
  if (!shared->answer.has_value()) return NoAnswer("did not answer in time");
  return *std::move(shared->answer);
}

absl::StatusOr<std::vector<ProcessSummary>> Daemon::Processes() {
  return Ask<absl::StatusOr<std::vector<ProcessSummary>>>([](Recorder& recorder) { return recorder.Summaries(); });
}

absl::StatusOr<std::vector<EndedProcess>> Daemon::Ended() {
  return Ask<absl::StatusOr<std::vector<EndedProcess>>>(
      [](Recorder& recorder) { return std::vector<EndedProcess>(recorder.ended().begin(), recorder.ended().end()); });
}

absl::StatusOr<ProfileSnapshot> Daemon::Snapshot(pid_t pid) {
  return Ask<absl::StatusOr<ProfileSnapshot>>([pid](Recorder& recorder) { return recorder.Snapshot(pid); });
}

absl::StatusOr<std::string> Daemon::Dump(pid_t pid) {
  return Ask<absl::StatusOr<std::string>>([pid](Recorder& recorder) { return recorder.DumpOne(pid); });
}

absl::StatusOr<AllocatorFigures> Daemon::Allocator(pid_t pid) {
  return Ask<absl::StatusOr<AllocatorFigures>>(
      [pid](Recorder& recorder) { return recorder.ReadAllocatorFigures(pid); });
}

absl::Status Daemon::SetActive(pid_t pid, bool active) {
  return Ask<absl::Status>([pid, active](Recorder& recorder) { return recorder.SetActive(pid, active); });
}

absl::Status Daemon::SetRate(pid_t pid, std::optional<uint32_t> lg_sample) {
  return Ask<absl::Status>([pid, lg_sample](Recorder& recorder) { return recorder.SetRate(pid, lg_sample); });
}

absl::StatusOr<exporter::CollectorFigures> Daemon::Figures() {
  return Ask<absl::StatusOr<exporter::CollectorFigures>>([](Recorder& recorder) { return recorder.Figures(); });
}

}  // namespace heaptap::service
