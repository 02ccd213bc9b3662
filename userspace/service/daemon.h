// SPDX-License-Identifier: Apache-2.0
//
// The collector that runs from boot: a system-wide recording and its clients.
//
// One thread owns the recording: it calls Work when fds() are readable, or when kWorkInterval has passed. Calls of
// clients (collector.h) come from other threads, and Work answers them.
#ifndef HEAPTAP_USERSPACE_SERVICE_DAEMON_H_
#define HEAPTAP_USERSPACE_SERVICE_DAEMON_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "userspace/elf/file_descriptor.h"
#include "userspace/service/collector.h"
#include "userspace/service/http_server.h"
#include "userspace/service/recorder.h"

namespace heaptap::service {

class Daemon : public Collector {
 public:
  // How late a newly mapped library gets its probes; its samples before that are missed. The kernel wakes the collector
  // at once only when many files have been mapped.
  static constexpr absl::Duration kWorkInterval = absl::Milliseconds(20);

  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const RecorderOptions& recording, const HttpOptions& http);
  // Waiting clients get an error. What is pinned stays.
  ~Daemon() override;

  std::vector<int> fds() const;
  void Work();

  void DumpAll() { recorder_->DumpAll(HEAPTAP_DUMP_MANUAL); }
  // PID 0: the process with the most live memory. Prints its errors.
  void DumpOne(pid_t pid);
  Recorder& recorder() { return *recorder_; }
  // The port of HTTP over TCP; 0: none.
  int port() const { return server_->port(); }
  absl::StatusOr<std::vector<ProcessSummary>> Processes() override;
  absl::StatusOr<std::vector<EndedProcess>> Ended() override;
  absl::StatusOr<ProfileSnapshot> Snapshot(pid_t pid) override;
  absl::StatusOr<std::string> Dump(pid_t pid) override;
  absl::StatusOr<AllocatorFigures> Allocator(pid_t pid) override;
  absl::Status SetActive(pid_t pid, bool active) override;
  absl::Status SetRate(pid_t pid, std::optional<uint32_t> lg_sample) override;
  absl::StatusOr<exporter::CollectorFigures> Figures() override;

 private:
  // Called with null when the daemon ends before it has answered.
  using Question = std::function<void(Recorder*)>;

  Daemon(std::unique_ptr<Recorder> recorder, elf::FileDescriptor asked)
      : recorder_(std::move(recorder)), asked_(std::move(asked)) {}
  // Passes a question to the recording's thread and waits for the answer.
  template <typename Answer>
  Answer Ask(std::function<Answer(Recorder&)> question);
  std::vector<Question> TakeQuestions();

  std::unique_ptr<Recorder> recorder_;
  elf::FileDescriptor asked_;  // an eventfd, readable while there are questions
  absl::Time ticked_ = absl::InfinitePast();
  absl::Mutex mutex_;
  std::vector<Question> questions_ ABSL_GUARDED_BY(mutex_);
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_DAEMON_H_
