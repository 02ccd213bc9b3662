// SPDX-License-Identifier: Apache-2.0
//
// Records of single samples: where and when each was allocated and freed.
#ifndef HEAPTAP_USERSPACE_PROFILE_SAMPLE_RECORD_H_
#define HEAPTAP_USERSPACE_PROFILE_SAMPLE_RECORD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heaptap::profile {

// An allocation or a free: its thread, time and call path.
struct Deed {
  uint32_t tid = 0;                                          // in the first PID namespace
  std::string thread_name = {};                              // may have any bytes; "": none
  uint64_t time = 0;                                         // nanoseconds of CLOCK_MONOTONIC
  std::shared_ptr<const std::vector<uint64_t>> frames = {};  // as in Context, shared by many; null: none
};

struct SampleRecord {
  uint64_t size = 0;  // usable bytes
  Deed allocation = {};
  std::optional<Deed> free = {};  // none: the sample lives
};

struct SampleRecords {
  uint64_t period = 1;    // mean bytes between samples
  uint64_t demanded = 0;  // number of records that was asked for
  uint64_t pid = 0;
  std::vector<SampleRecord> samples = {};  // oldest first
};

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_SAMPLE_RECORD_H_
