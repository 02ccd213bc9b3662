// SPDX-License-Identifier: Apache-2.0
//
// Attaching a program to one probe site of one file, by its inode.
//
// While an AttachedProbe lives, or its link is pinned, the kernel holds a breakpoint at the site and the probe's
// semaphore up in every process it concerns, also in those that map the file later; then both are as before.
#ifndef HEAPTAP_USERSPACE_BPF_PROBES_H_
#define HEAPTAP_USERSPACE_BPF_PROBES_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "userspace/elf/file_descriptor.h"

namespace heaptap::bpf {

// Offsets are those in the file, in bytes.
struct ProbeLocation {
  std::string path;  // opened by the kernel; what counts is the inode behind it
  uint64_t offset;
  uint64_t semaphore_offset;  // 0: none
};

class AttachedProbe {
 public:
  // `program`: descriptor of the program. `pid` -1: every process that maps the file, now or later; else that process
  // only. NotFound: the process is gone.
  static absl::StatusOr<AttachedProbe> Attach(int program, const ProbeLocation& location, pid_t pid);

  int link() const { return link_.get(); }

 private:
  explicit AttachedProbe(elf::FileDescriptor link) : link_(std::move(link)) {}
  elf::FileDescriptor link_;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_PROBES_H_
