// SPDX-License-Identifier: Apache-2.0
//
// Finds names for the addresses in profiles of running processes.
//
// Files are opened through the process while it lives (elf::OpenMapped), and later by their path if it still leads to
// the same file. The PID may have been reused, so /proc/PID/maps is opened first, then the collector is asked whether
// the PID still has the same books; after each file is opened, a byte of maps is read, which is empty once the process
// has ended or has called exec. The process's memory is not read, because the process can block that for ever.
#ifndef HEAPTAP_USERSPACE_SERVICE_PROCESS_SYMBOLS_H_
#define HEAPTAP_USERSPACE_SERVICE_PROCESS_SYMBOLS_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/export/source_frames.h"
#include "userspace/service/collector.h"
#include "userspace/symbolize/symbolizer.h"

namespace heaptap::service {

// Thread-safe. RunConfined's conditions hold (userspace/symbolize/confined.h).
class ProcessSymbols {
 public:
  struct Options {
    symbolize::Symbolizer::Options symbolizer = {.limits = {.time = absl::Seconds(10)}};
    // Approximate limit for one call: addresses that are not found by then have no names. Hostile files can make each
    // lookup take as long as the symbolizer's limit, while other calls wait.
    absl::Duration patience = absl::Seconds(20);
  };

  explicit ProcessSymbols(Collector& collector) : ProcessSymbols(collector, Options()) {}
  ProcessSymbols(Collector& collector, Options options);

  // The names at `addresses`, which lie inside calls (CallAddress).
  exporter::FindSourceFrames Find(const ProfileSnapshot& snapshot, absl::Span<const uint64_t> addresses);

  // The names at the call addresses of all frames in the profile. Fills in the build-ids of the mappings with frames,
  // and of the program.
  exporter::FindSourceFrames FindAll(ProfileSnapshot& snapshot);

 private:
  // Device, inode and last change of a file: a changed file is another version.
  using Version = std::tuple<uint32_t, uint32_t, uint64_t, int64_t, uint32_t>;
  class Files;

  std::vector<symbolize::Frames> Symbolize(const elf::Mapping& mapping, int fd, absl::Span<const uint64_t> offsets,
                                           absl::Time deadline);
  std::string BuildId(int fd);

  Collector& collector_;
  const Options options_;
  absl::Mutex mutex_;
  // Set while a call uses the symbolizer. The mutex is free meanwhile, so that other calls can give up waiting.
  bool is_busy_ ABSL_GUARDED_BY(mutex_) = false;
  symbolize::Symbolizer symbolizer_;
  std::map<Version, std::string> build_ids_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_PROCESS_SYMBOLS_H_
