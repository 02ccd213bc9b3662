// SPDX-License-Identifier: Apache-2.0
//
// Mapping events from perf: the mmap, comm and fork records of a software event that never counts.
//
// Needs CAP_PERFMON. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_PERF_MAPPING_EVENTS_H_
#define HEAPTAP_USERSPACE_BPF_PERF_MAPPING_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/bpf/mapping_events.h"

namespace heaptap::bpf {

class PerfMappingEvents final : public MappingEvents {
 public:
  // Opens a buffer for each CPU and starts recording. With control groups (descriptors of their folders, version 2),
  // only events of processes in one of them, or below one, are recorded, in a buffer for each CPU and group. No group
  // may lie below another one; a negative descriptor stands for a group that does not exist yet.
  static absl::StatusOr<std::unique_ptr<MappingEvents>> Start(absl::Span<const int> groups = {});
  ~PerfMappingEvents() override;

  std::vector<int> fds() const override;
  std::vector<MappingEvent> Take() override;
  absl::Status ReplaceGroup(int before, int now) override;
  uint64_t lost() const override;

  // The bytes of each CPU's buffer on a machine with this number of CPUs.
  static size_t DataBytes(size_t cpus);

 private:
  struct Buffer {
    int fd = -1;
    int group = kEveryone;
    void* memory = nullptr;
    uint64_t lost = 0;
  };
  static constexpr int kEveryone = -1;
  PerfMappingEvents() = default;
  // Opens a buffer for each CPU.
  absl::Status OpenGroup(int group);
  absl::Status OpenCpu(int cpu, int group);
  void Close(const Buffer& buffer) const;
  void Read(Buffer& buffer, std::vector<MappingEvent>& events) const;

  size_t data_bytes_ = 0;  // of each buffer
  std::vector<Buffer> buffers_;
  std::vector<MappingEvent> pending_;  // of closed buffers
  uint64_t lost_ = 0;                  // in closed buffers
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_PERF_MAPPING_EVENTS_H_
