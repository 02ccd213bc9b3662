// SPDX-License-Identifier: Apache-2.0
//
// Finds names for the addresses in profiles of running processes, and their command lines.
//
// Workers open the files through the process while it lives, and later by their path if it still leads to the same
// file. The PID may be reused at any moment, so the collector is asked before and after whether it still has the same
// books; what was found through another process is dropped.
#ifndef HEAPTAP_USERSPACE_API_PROCESS_SYMBOLS_H_
#define HEAPTAP_USERSPACE_API_PROCESS_SYMBOLS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/api/collector.h"
#include "userspace/base/clock.h"
#include "userspace/base/user_ids.h"
#include "userspace/export/source_frames.h"
#include "userspace/profile/snapshot.h"
#include "userspace/symbolize/answer.h"
#include "userspace/worker/crews.h"
#include "userspace/worker/symbolizer.h"

namespace heaptap::api {

// Thread-safe.
class ProcessSymbols {
 public:
  struct Options {
    worker::Symbolizer::Options symbolizer = {.limits = {.time = absl::Seconds(10)}};
    // Approximate limit for one call: addresses that are not found by then have no names. Hostile files can make each
    // lookup take as long as the symbolizer's limit, while other calls wait.
    absl::Duration patience = absl::Seconds(20);
  };

  // Refers to `collector` and `crews`.
  ProcessSymbols(Collector& collector, worker::Crews& crews) : ProcessSymbols(collector, crews, Options()) {}
  ProcessSymbols(Collector& collector, worker::Crews& crews, Options options);

  // The names at `addresses`, which lie inside calls (CallAddress).
  exporter::FindSourceFrames Find(const profile::Snapshot& snapshot, absl::Span<const uint64_t> addresses);

  // The names at the call addresses of all frames in the profile. Fills in the build-ids of the mappings with frames,
  // and of the program, and adds warnings about debug information that was not read.
  exporter::FindSourceFrames FindAll(profile::Snapshot& snapshot);

  // The words of the process's command line; empty if it is gone or has none. Untrusted text, cut at a bound.
  std::vector<std::string> CommandLine(const profile::ProcessSummary& process);

 private:
  // A process that has the books of a snapshot at this moment; without a PID: it has ended.
  struct Owner {
    pid_t pid = 0;
    uid_t user = base::kUnknownUser;
  };
  Owner FindOwner(pid_t pid, uint64_t process_id);

  struct Found {
    absl::flat_hash_map<uint64_t, symbolize::Frames> frames = {};  // by address
    std::map<symbolize::Gap, std::set<std::string>> unread = {};   // paths of files
  };
  Found FindNow(const profile::Snapshot& snapshot, absl::Span<const uint64_t> addresses);
  Found FindBy(const Owner& owner, const profile::Snapshot& snapshot, absl::Span<const uint64_t> addresses);
  std::vector<symbolize::Frames> Symbolize(const Owner& owner, const elf::Mapping& mapping,
                                           absl::Span<const uint64_t> offsets, base::Instant deadline,
                                           symbolize::Gap& gap);
  std::string BuildId(const Owner& owner, const elf::Mapping& mapping);

  Collector& collector_;
  worker::Crews& crews_;
  const Options options_;
  absl::Mutex mutex_;
  // Set while a call uses the symbolizer. The mutex is free meanwhile, so that other calls can give up waiting.
  bool is_busy_ ABSL_GUARDED_BY(mutex_) = false;
  worker::Symbolizer symbolizer_;
};

}  // namespace heaptap::api

#endif  // HEAPTAP_USERSPACE_API_PROCESS_SYMBOLS_H_
