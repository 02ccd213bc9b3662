// SPDX-License-Identifier: Apache-2.0
//
// Two processes that do one job after another with files and memory of other users: HANDS open files of processes, and
// a READER without any rights reads them.
//
// The collector itself never holds a descriptor of such a file: even close(2) may wait for ever for a file system in
// user space. Its request goes to the hands, from there with open descriptors to the reader, and the answer comes back
// from either:
//
//     collector --request--> hands --request, descriptors--> reader --answer--> collector
//                                  `--------answer, if the file cannot be opened--^
//
// Both are this program, executed again from /proc/self/exe with a name of their own (RunIfWorker), three descriptors
// and no inherited memory. They end when their socket closes. A process that is late is killed; if the kernel cannot
// end it, it is left behind. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_CREWS_CREW_H_
#define HEAPTAP_USERSPACE_CREWS_CREW_H_

#include <sys/types.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/worker/request.h"

namespace heaptap::worker {

// For whom a reader works.
enum class Urgency {
  kBackground,  // for any user of the daemon: at the lowest priority
  kForeground,  // for somebody who waits: at the collector's own priority, or a low one if that is a daemon's
};

// Takes the exit statuses of killed processes of all crews, so that no zombies stay. Thread-safe.
void ReapKilled();

class Crew {
 public:
  // Unavailable: the processes cannot be started. REQUIRES: SIGCHLD is not ignored.
  static absl::StatusOr<std::unique_ptr<Crew>> Start(Urgency urgency);
  // Without a reader, for jobs of the hands alone.
  static absl::StatusOr<std::unique_ptr<Crew>> StartHands();
  // Kills both processes and does not wait for them.
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Does one job. The crew is not usable again if the status of the answer is not the job's own (is_usable).
  Answer Do(const Request& request, const Limits& limits);
  bool is_usable() const { return is_usable_; }

  // How long the processes were ready to run but had no processor, since their start or the last call.
  absl::Duration TakeProcessorWait();

  pid_t hands() const { return hands_; }
  pid_t reader() const { return reader_; }

 private:
  Crew() = default;
  pid_t hands_ = 0;
  pid_t reader_ = 0;
  absl::Duration processor_wait_ = {};  // as of the last call
  base::FileDescriptor to_hands_;       // requests, and answers of the hands
  base::FileDescriptor from_reader_;    // answers of the reader
  bool is_usable_ = true;
};

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_CREWS_CREW_H_
