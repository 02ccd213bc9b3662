// SPDX-License-Identifier: Apache-2.0
//
// Attaches a program to probe sites of one file, by its inode: one site by a perf event (all kernels), or many by one
// link (uprobe_multi, Linux 6.6). To remove a link, the kernel waits for all CPUs that may run the program; with many
// sites in a link it waits once.
//
// While an AttachedProbe lives, or its link is pinned, the kernel keeps a breakpoint at the site, and counts up the
// probe's semaphore, in every process that maps the file, now or later. Afterwards both are as before.
#ifndef HEAPTAP_USERSPACE_BPF_PROBES_H_
#define HEAPTAP_USERSPACE_BPF_PROBES_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::bpf {

// Offsets are those in the file, in bytes.
struct ProbeLocation {
  std::string path;  // opened by the kernel, which attaches to the inode
  uint64_t offset;
  uint64_t semaphore_offset;  // 0: none
  uint64_t cookie = 0;        // bpf_get_attach_cookie
};

struct ProbeSite {
  uint64_t offset;
  uint64_t semaphore_offset;  // 0: none
  uint64_t cookie;            // bpf_get_attach_cookie
};

// The expected attach type of programs for AttachMany (bpf_program__set_expected_attach_type before the load).
inline constexpr int kManySitesAttachType = 48;  // BPF_TRACE_UPROBE_MULTI of newer headers

// Whether this kernel has links to many sites whose filter is a process. The first kernels with such links filtered by
// thread.
bool HasManySites();

class AttachedProbe {
 public:
  // `program`: descriptor of the program. `pid`: one process, or -1 for every process that maps the file, now or later.
  // NotFound: the process is gone. InvalidArgument: the semaphore lies beyond 4 GiB, which only AttachMany can do.
  static absl::StatusOr<AttachedProbe> Attach(int program, const ProbeLocation& location, pid_t pid);

  // Like Attach, for many sites. REQUIRES: `program` was loaded with kManySitesAttachType.
  static absl::StatusOr<AttachedProbe> AttachMany(int program, const std::string& path,
                                                  absl::Span<const ProbeSite> sites, pid_t pid);

  int link() const { return link_.get(); }

 private:
  explicit AttachedProbe(base::FileDescriptor link) : link_(std::move(link)) {}
  base::FileDescriptor link_;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_PROBES_H_
