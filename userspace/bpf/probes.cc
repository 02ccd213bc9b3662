// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/probes.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "userspace/bpf/kernel_error.h"

namespace heaptap::bpf {
namespace {

// perf_event_attr.config of a uprobe has the semaphore's offset from this bit on
// (/sys/bus/event_source/devices/uprobe/format/ref_ctr_offset).
constexpr int kSemaphoreShift = 32;

// 0: the kernel has no uprobes.
uint32_t UprobeType() {
  std::ifstream file("/sys/bus/event_source/devices/uprobe/type");
  uint32_t type = 0;
  file >> type;
  return type;
}

}  // namespace

absl::StatusOr<AttachedProbe> AttachedProbe::Attach(int program, const ProbeLocation& location, pid_t pid) {
  const auto failure = [&](int error) {
    return KernelError(error, absl::StrCat("attaching to offset ", absl::Hex(location.offset), " of ", location.path));
  };
  const uint32_t type = UprobeType();
  if (type == 0) return absl::FailedPreconditionError("this kernel has no uprobes");
  perf_event_attr attributes = {};
  attributes.size = sizeof(attributes);
  attributes.type = type;
  attributes.config = location.semaphore_offset << kSemaphoreShift;
  attributes.uprobe_path = reinterpret_cast<uint64_t>(location.path.c_str());
  attributes.probe_offset = location.offset;
  const elf::FileDescriptor event(
      static_cast<int>(syscall(SYS_perf_event_open, &attributes, pid, pid == -1 ? 0 : -1, -1, PERF_FLAG_FD_CLOEXEC)));
  if (!event.valid()) return failure(errno);
  // The link holds the event.
  elf::FileDescriptor link(bpf_link_create(program, event.get(), BPF_PERF_EVENT, nullptr));
  if (!link.valid()) return failure(errno);
  if (ioctl(event.get(), PERF_EVENT_IOC_ENABLE, 0) != 0) return failure(errno);
  return AttachedProbe(std::move(link));
}

}  // namespace heaptap::bpf
