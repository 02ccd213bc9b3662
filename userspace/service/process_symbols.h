// SPDX-License-Identifier: Apache-2.0
//
// Names for the addresses in profiles of running processes.
//
// Files are opened as the process has them mapped, as long as it lives (elf::OpenMapped), else by their path if that
// still leads to the same file. A PID that now means another process is not believed: the process's maps are opened
// first, then the collector is asked whether the PID still has the same books, and after each file is opened a byte of
// those maps is read, which are empty as soon as the process has ended or executes another program. Its memory is not
// read: a process can make that wait for ever.
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
    // For one call, roughly: what has not been found until then has no names. Hostile files can make each lookup take
    // as long as the symbolizer's limit; others wait meanwhile.
    absl::Duration patience = absl::Seconds(20);
  };

  explicit ProcessSymbols(Collector& collector) : ProcessSymbols(collector, Options()) {}
  ProcessSymbols(Collector& collector, Options options);

  // The names at `addresses` of the process, each within a call (CallAddress).
  exporter::FindSourceFrames Find(const ProfileSnapshot& snapshot, absl::Span<const uint64_t> addresses);

  // The names of all frames of the profile, as CallAddress has them. Fills in the build-ids of the mappings that hold
  // any, and of the program.
  exporter::FindSourceFrames FindAll(ProfileSnapshot& snapshot);

 private:
  // A file as it is now: device, inode, last change. The change of a file changes it too.
  using Version = std::tuple<uint32_t, uint32_t, uint64_t, int64_t, uint32_t>;
  class Files;

  std::vector<symbolize::Frames> Symbolize(const elf::Mapping& mapping, int fd, absl::Span<const uint64_t> offsets,
                                           absl::Time deadline);
  std::string BuildId(int fd);

  Collector& collector_;
  const Options options_;
  absl::Mutex mutex_;
  // One at a time asks the symbolizer, without the mutex, so that others can give up waiting.
  bool is_busy_ ABSL_GUARDED_BY(mutex_) = false;
  symbolize::Symbolizer symbolizer_;
  std::map<Version, std::string> build_ids_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_PROCESS_SYMBOLS_H_
