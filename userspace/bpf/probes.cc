// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/probes.h"

#include <bpf/libbpf.h>
#include <errno.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/bpf/kernel_error.h"

namespace heaptap::bpf {

absl::StatusOr<AttachedProbe> AttachedProbe::Attach(const bpf_program* program, const ProbeLocation& location,
                                                    pid_t pid) {
  bpf_uprobe_opts options = {};
  options.sz = sizeof(options);
  options.ref_ctr_offset = location.semaphore_offset;
  bpf_link* link = bpf_program__attach_uprobe_opts(program, pid, location.path.c_str(), location.offset, &options);
  if (link == nullptr) {
    return KernelError(errno, absl::StrCat("attaching ", bpf_program__name(program), " to ", location.path));
  }
  return AttachedProbe(link);
}

AttachedProbe::AttachedProbe(AttachedProbe&& other) noexcept : link_(std::exchange(other.link_, nullptr)) {}

AttachedProbe& AttachedProbe::operator=(AttachedProbe&& other) noexcept {
  std::swap(link_, other.link_);
  return *this;
}

AttachedProbe::~AttachedProbe() {
  if (link_ != nullptr) bpf_link__destroy(link_);
}

}  // namespace heaptap::bpf
