// SPDX-License-Identifier: Apache-2.0
//
// The collector that runs from boot: a system-wide recording and its clients.
//
// One thread, the recording's, owns the recording: it calls Work when a descriptor of the recorder or questions_fd() is
// readable, or when patience() has passed. Calls of clients (collector.h) come from other threads, and Work answers
// them. The threads of the clients do themselves what takes long: reading tallies and writing dumps.
#ifndef HEAPTAP_USERSPACE_DAEMON_DAEMON_H_
#define HEAPTAP_USERSPACE_DAEMON_DAEMON_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/collector.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/mutex.h"
#include "userspace/base/subordinate_ids.h"
#include "userspace/base/turns.h"
#include "userspace/crews/crews.h"
#include "userspace/daemon/historian.h"
#include "userspace/daemon/pauses.h"
#include "userspace/http/client_time.h"
#include "userspace/http/server.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"
#include "userspace/recording/recorder.h"

namespace heaptap::daemon {

class Daemon : public api::Collector {
 public:
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const recording::RecorderOptions& recording,
                                                       const http::ServerOptions& http, const HistoryOptions& history);
  // Serves a recording. `is_restricted`: Collector::IsRestricted.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(std::unique_ptr<recording::Recorder> recorder,
                                                       bool is_restricted, const http::ServerOptions& http,
                                                       const HistoryOptions& history);
  // Waiting clients get an error. What is pinned stays.
  ~Daemon() override;

  // Readable when clients have asked.
  int questions_fd() const { return asked_.get(); }
  absl::Duration patience() const;
  void Work();

  // These dumps are written in the background, where their errors are printed.
  void DumpAll() { recorder_->DumpAll(HEAPTAP_DUMP_MANUAL); }
  // PID 0: the process with the most live memory.
  void DumpOne(pid_t pid);
  recording::Recorder& recorder() { return *recorder_; }
  // The port of HTTP over TCP; 0: none.
  int port() const { return server_->port(); }
  absl::StatusOr<std::vector<profile::ProcessSummary>> Processes(http::Asker& asker) override;
  absl::StatusOr<profile::NamedProcess> Find(pid_t pid, http::Asker& asker) override;
  absl::StatusOr<std::optional<uid_t>> Owner(const profile::ProcessRef& process) override;
  absl::StatusOr<std::vector<profile::EndedProcess>> Ended() override;
  absl::StatusOr<profile::Snapshot> Snapshot(const profile::ProcessRef& process, http::Asker& asker) override;
  absl::StatusOr<profile::Snapshot> DetailedSnapshot(const profile::ProcessRef& process, http::Asker& asker) override;
  absl::StatusOr<std::string> Dump(const profile::ProcessRef& process, http::Asker& asker) override;
  absl::StatusOr<profile::AllocatorFigures> Allocator(const profile::ProcessRef& process) override;
  absl::StatusOr<profile::ResidentBytes> Resident(const profile::ProcessRef& process, http::Asker& asker) override;
  absl::Status SetActive(const profile::ProcessRef& process, bool active) override;
  absl::Status SetRate(const profile::ProcessRef& process, std::optional<uint32_t> lg_sample) override;
  absl::StatusOr<profile::CollectorFigures> Figures(http::Asker& asker) override;
  absl::Status Health() const override;
  bool IsRestricted() const override { return is_restricted_; }
  absl::Status Settle() override;
  absl::StatusOr<profile::Survey> Survey(const profile::Activities& known, absl::Duration interval,
                                         bool with_paths) override;
  absl::StatusOr<profile::SurveyedStacks> Stacks(const profile::ProcessRef& process,
                                                 const std::vector<uint64_t>& stack_ids) override;

 private:
  // Called with null when the daemon ends before it has answered. False: something is not done yet; ask again.
  using Question = std::function<bool(recording::Recorder*)>;

  Daemon(std::unique_ptr<recording::Recorder> recorder, base::FileDescriptor asked, bool is_restricted)
      : recorder_(std::move(recorder)), asked_(std::move(asked)), is_restricted_(is_restricted) {}
  // Passes a question to the recording's thread and waits for the answer, while holding no lock and no turn that others
  // need. `asker` pays for the thread's time; null: nobody does. A question that returns ResourceExhausted is asked
  // again.
  template <typename Answer>
  Answer Ask(std::function<Answer(recording::Recorder&)> question, http::Asker* asker = nullptr);
  // Like Ask, for a question whose answer comes later: the question calls `done` once, itself or in a later Pump. The
  // asker does not pay for that Pump.
  template <typename Answer>
  using LaterQuestion = std::function<void(recording::Recorder&, std::function<void(Answer)> done)>;
  template <typename Answer>
  Answer AskLater(LaterQuestion<Answer> question, http::Asker* asker = nullptr);
  std::vector<Question> TakeQuestions();
  // Reads the tallies in the calling thread, so that the recording's thread goes on.
  absl::StatusOr<profile::Snapshot> MakeSnapshot(const profile::ProcessRef& process, bool with_blocks,
                                                 http::Asker& asker);

  std::unique_ptr<recording::Recorder> recorder_;
  base::FileDescriptor asked_;  // an eventfd, readable while there are questions
  const bool is_restricted_;
  base::Instant ticked_ = base::Instant::InfinitePast();
  base::Mutex mutex_;
  std::vector<Question> questions_ ABSL_GUARDED_BY(mutex_);
  std::vector<Question> waiting_;     // of the recording's thread; to be answered or asked again
  std::weak_ptr<const int> summing_;  // of the recording's thread; alive: a client sums up the tallies for all
  std::atomic<uint64_t> worked_ = base::Now().nanoseconds();  // when the recording's thread ended its last Work
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  // One client at a time reads the tallies of a profile: many at once would take much memory.
  base::Turns reading_{base::SubordinateIds::OfSystem()};
  Pauses pauses_;                         // of the recording's thread
  worker::Crews crews_;                   // outlives the server and the historian
  std::unique_ptr<Historian> historian_;  // null: no history; outlives the server
  std::unique_ptr<http::Server> server_;
};

}  // namespace heaptap::daemon

#endif  // HEAPTAP_USERSPACE_DAEMON_DAEMON_H_
