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

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/api/collector.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/base/user_ids.h"
#include "userspace/crews/crews.h"
#include "userspace/crews/symbolizer.h"
#include "userspace/profile/snapshot.h"
#include "userspace/profile/source_frames.h"
#include "userspace/symbolize/answer.h"

namespace heaptap::api {

// Thread-safe.
class ProcessSymbols {
 public:
  struct Options {
    worker::Symbolizer::Options symbolizer = {.limits = {.time = absl::Seconds(10)}};
    // Approximate limit for one call: addresses that are not found by then have no names. Hostile files can make each
    // lookup take as long as the symbolizer's limit, while other calls about processes of their user wait.
    absl::Duration patience = absl::Seconds(20);
    // The bound for the names of one call, which count once for each address that has them. Programs choose their
    // names: without a bound, the names of a small file could take all memory. Further addresses have no names.
    uint64_t name_bytes = 64 << 20;
    // How many users have a symbolizer. Beyond that, a user gets the place of the idle one whose last use was longest
    // ago, or waits for one. The symbolizers share the memory for answers.
    size_t users = 8;
  };

  // Refers to `collector` and `crews`.
  ProcessSymbols(Collector& collector, worker::Crews& crews) : ProcessSymbols(collector, crews, Options()) {}
  ProcessSymbols(Collector& collector, worker::Crews& crews, Options options);

  // The names at `addresses`, which lie inside calls (CallAddress).
  profile::FindSourceFrames Find(const profile::Snapshot& snapshot, absl::Span<const uint64_t> addresses);

  // The names at the call addresses of all frames in the profile. Fills in the build-ids of the mappings with frames,
  // and of the program, and adds warnings about debug information that was not read.
  profile::FindSourceFrames FindAll(profile::Snapshot& snapshot);

  // The words of the process's command line; empty if it is gone or has none. Untrusted text, cut at a bound.
  std::vector<std::string> CommandLine(const profile::NamedProcess& process);

 private:
  // The process that has the books of a snapshot at this moment. Without a PID, the process has ended.
  struct Owner {
    pid_t pid = 0;
    uid_t user = base::kUnknownUser;
  };
  Owner FindOwner(pid_t pid, uint64_t process_id);

  struct Found {
    absl::flat_hash_map<uint64_t, symbolize::Frames> frames = {};  // by address
    std::map<symbolize::Gap, std::set<std::string>> unread = {};   // paths of files
    std::set<std::string> late = {};                               // paths of files that nobody had time for
    std::set<std::string> too_long = {};                           // paths of files beyond name_bytes
  };
  Found FindNow(const profile::Snapshot& snapshot, absl::Span<const uint64_t> addresses);
  Found FindBy(const Owner& owner, const profile::Snapshot& snapshot, absl::Span<const uint64_t> addresses);
  // The names of one user's files, which one call at a time looks up.
  struct OfUser {
    std::unique_ptr<worker::Symbolizer> symbolizer;
    bool is_busy = false;
    uint64_t used = 0;  // number of its last use
  };
  // Waits for the symbolizer of a user. Null: none was free by the deadline.
  worker::Symbolizer* Begin(uid_t user, base::Instant deadline);
  void End(uid_t user);
  std::string BuildId(const Owner& owner, const elf::Mapping& mapping);

  Collector& collector_;
  worker::Crews& crews_;
  const Options options_;
  // Not held while symbolizers are at work, so that other calls can give up waiting.
  base::Mutex mutex_;
  std::map<uid_t, OfUser> users_ ABSL_GUARDED_BY(mutex_);
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace heaptap::api

#endif  // HEAPTAP_USERSPACE_API_PROCESS_SYMBOLS_H_
