// SPDX-License-Identifier: Apache-2.0
//
// Mapping events from perf: the mmap, comm and fork records of a software event that never counts.
//
// Needs CAP_PERFMON. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_PERF_MAPPING_EVENTS_H_
#define HEAPTAP_USERSPACE_BPF_PERF_MAPPING_EVENTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/bpf/mapping_events.h"

namespace heaptap::bpf {

class PerfMappingEvents final : public MappingEvents {
 public:
  // Opens a buffer for each CPU and starts recording.
  static absl::StatusOr<std::unique_ptr<MappingEvents>> Start();
  ~PerfMappingEvents() override;

  std::vector<int> fds() const override;
  std::vector<MappingEvent> Take() override;
  uint64_t lost() const override;

 private:
  struct Buffer {
    int fd = -1;
    void* memory = nullptr;
    uint64_t lost = 0;
  };
  PerfMappingEvents() = default;
  absl::Status OpenCpu(int cpu);
  static void Read(Buffer& buffer, std::vector<MappingEvent>& events);

  std::vector<Buffer> buffers_;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_PERF_MAPPING_EVENTS_H_
