// SPDX-License-Identifier: Apache-2.0
//
// Attaching a program to probe sites of one file, by its inode: one site by a perf event (all kernels), or many by one
// link (uprobe_multi, Linux 6.6). To take a link away the kernel waits for all that may run the program: with many
// sites in a link it does so once.
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
#include "absl/types/span.h"
#include "userspace/elf/file_descriptor.h"

namespace heaptap::bpf {

// Offsets are those in the file, in bytes.
struct ProbeLocation {
  std::string path;  // opened by the kernel; what counts is the inode behind it
  uint64_t offset;
  uint64_t semaphore_offset;  // 0: none
};

struct ProbeSite {
  uint64_t offset;
  uint64_t semaphore_offset;  // 0: none
  uint64_t cookie;            // bpf_get_attach_cookie
};

// Of programs that AttachMany attaches: bpf_program__set_expected_attach_type, before they are loaded.
inline constexpr int kManySitesAttachType = 48;  // BPF_TRACE_UPROBE_MULTI of newer headers

// Whether this kernel has links to many sites, and keeps them to a process as it should: at first it kept them to a
// thread.
bool HasManySites();

class AttachedProbe {
 public:
  // `program`: descriptor of the program. `pid` -1: every process that maps the file, now or later; else that process
  // only. NotFound: the process is gone.
  static absl::StatusOr<AttachedProbe> Attach(int program, const ProbeLocation& location, pid_t pid);

  // The same for all these sites. `program` was loaded with kManySitesAttachType.
  static absl::StatusOr<AttachedProbe> AttachMany(int program, const std::string& path,
                                                  absl::Span<const ProbeSite> sites, pid_t pid);

  int link() const { return link_.get(); }

 private:
  explicit AttachedProbe(elf::FileDescriptor link) : link_(std::move(link)) {}
  elf::FileDescriptor link_;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_PROBES_H_
