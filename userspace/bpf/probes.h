// SPDX-License-Identifier: Apache-2.0
//
// Attaching a program to one probe site of one file, by its inode.
//
// While an AttachedProbe lives, the kernel holds a breakpoint at the site and the probe's semaphore up in every process
// it concerns, also in those that map the file later; when it dies both are as before.
#ifndef HEAPTAP_USERSPACE_BPF_PROBES_H_
#define HEAPTAP_USERSPACE_BPF_PROBES_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

struct bpf_link;
struct bpf_program;

namespace heaptap::bpf {

// Offsets are those in the file, in bytes.
struct ProbeLocation {
  std::string path;  // opened by the kernel; what counts is the inode behind it
  uint64_t offset;
  uint64_t semaphore_offset;  // 0: none
};

class AttachedProbe {
 public:
  // `pid` -1: every process that maps the file, now or later; else that process only. NotFound: the process is gone.
  static absl::StatusOr<AttachedProbe> Attach(const bpf_program* program, const ProbeLocation& location, pid_t pid);

  AttachedProbe(AttachedProbe&& other) noexcept;
  AttachedProbe& operator=(AttachedProbe&& other) noexcept;
  ~AttachedProbe();

 private:
  explicit AttachedProbe(bpf_link* link) : link_(link) {}
  bpf_link* link_;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_PROBES_H_
