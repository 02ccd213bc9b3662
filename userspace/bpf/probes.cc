// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/probes.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/bpf/kernel_error.h"

namespace heaptap::bpf {
namespace {

// The semaphore's offset in perf_event_attr.config of a uprobe begins at this bit
// (/sys/bus/event_source/devices/uprobe/format/ref_ctr_offset).
constexpr int kSemaphoreShift = 32;
constexpr int kSemaphoreBits = 32;

// 0: the kernel has no uprobes.
uint32_t UprobeType() {
  std::ifstream file("/sys/bus/event_source/devices/uprobe/type");
  uint32_t type = 0;
  file >> type;
  return type;
}

// The part of union bpf_attr for BPF_LINK_CREATE with BPF_TRACE_UPROBE_MULTI, which the headers of Debian 12 lack.
struct LinkToMany {
  uint32_t program;
  uint32_t target_fd;
  uint32_t attach_type;
  uint32_t flags;
  uint64_t path;
  uint64_t offsets;
  uint64_t semaphore_offsets;
  uint64_t cookies;
  uint32_t count;
  uint32_t multi_flags;
  uint32_t pid;  // 0: every process
  uint32_t reserved;
};

int MakeLink(const LinkToMany& link) {
  return static_cast<int>(syscall(SYS_bpf, BPF_LINK_CREATE, &link, sizeof(link)));
}

}  // namespace

bool HasManySites() {
  constexpr bpf_insn kNothing[] = {
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .src_reg = 0, .off = 0, .imm = 0},
      {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
  LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = static_cast<bpf_attach_type>(kManySitesAttachType));
  const base::FileDescriptor program(
      bpf_prog_load(BPF_PROG_TYPE_KPROBE, "heaptap_try", "GPL", kNothing, std::size(kNothing), &options));
  if (!program.valid()) return false;
  // Not a regular file, so the kernel refuses in any case. But a kernel that filters by thread checks the file before
  // it checks the PID.
  uint64_t offset = 0;
  LinkToMany link = {.program = static_cast<uint32_t>(program.get()),
                     .target_fd = 0,
                     .attach_type = kManySitesAttachType,
                     .flags = 0,
                     .path = reinterpret_cast<uint64_t>("/"),
                     .offsets = reinterpret_cast<uint64_t>(&offset),
                     .semaphore_offsets = 0,
                     .cookies = 0,
                     .count = 1,
                     .multi_flags = 0,
                     .pid = 0,
                     .reserved = 0};
  if (const base::FileDescriptor made(MakeLink(link)); made.valid() || errno != EBADF) return false;
  link.pid = ~0U;
  const base::FileDescriptor made(MakeLink(link));
  return !made.valid() && errno == EINVAL;
}

absl::StatusOr<AttachedProbe> AttachedProbe::AttachMany(int program, const std::string& path,
                                                        absl::Span<const ProbeSite> sites, pid_t pid) {
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> semaphore_offsets;
  std::vector<uint64_t> cookies;
  for (const ProbeSite& site : sites) {
    offsets.push_back(site.offset);
    semaphore_offsets.push_back(site.semaphore_offset);
    cookies.push_back(site.cookie);
  }
  base::FileDescriptor link(MakeLink({.program = static_cast<uint32_t>(program),
                                      .target_fd = 0,
                                      .attach_type = kManySitesAttachType,
                                      .flags = 0,
                                      .path = reinterpret_cast<uint64_t>(path.c_str()),
                                      .offsets = reinterpret_cast<uint64_t>(offsets.data()),
                                      .semaphore_offsets = reinterpret_cast<uint64_t>(semaphore_offsets.data()),
                                      .cookies = reinterpret_cast<uint64_t>(cookies.data()),
                                      .count = static_cast<uint32_t>(sites.size()),
                                      .multi_flags = 0,
                                      .pid = pid < 0 ? 0 : static_cast<uint32_t>(pid),
                                      .reserved = 0}));
  if (!link.valid()) return KernelError(errno, absl::StrCat("attaching to ", sites.size(), " sites of ", path));
  return AttachedProbe(std::move(link));
}

absl::StatusOr<AttachedProbe> AttachedProbe::Attach(int program, const ProbeLocation& location, pid_t pid) {
  const auto failure = [&](int error) {
    return KernelError(error, absl::StrCat("attaching to offset ", absl::Hex(location.offset), " of ", location.path));
  };
  if (location.semaphore_offset >> kSemaphoreBits != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(location.path, ": the kernel takes no semaphore beyond 4 GiB in the file"));
  }
  const uint32_t type = UprobeType();
  if (type == 0) return absl::FailedPreconditionError("this kernel has no uprobes");
  perf_event_attr attributes = {};
  attributes.size = sizeof(attributes);
  attributes.type = type;
  attributes.config = location.semaphore_offset << kSemaphoreShift;
  attributes.uprobe_path = reinterpret_cast<uint64_t>(location.path.c_str());
  attributes.probe_offset = location.offset;
  const base::FileDescriptor event(
      static_cast<int>(syscall(SYS_perf_event_open, &attributes, pid, pid == -1 ? 0 : -1, -1, PERF_FLAG_FD_CLOEXEC)));
  if (!event.valid()) return failure(errno);
  // The link keeps the event alive.
  LIBBPF_OPTS(bpf_link_create_opts, options, .perf_event = {.bpf_cookie = location.cookie});
  base::FileDescriptor link(bpf_link_create(program, event.get(), BPF_PERF_EVENT, &options));
  if (!link.valid()) return failure(errno);
  if (ioctl(event.get(), PERF_EVENT_IOC_ENABLE, 0) != 0) return failure(errno);
  return AttachedProbe(std::move(link));
}

}  // namespace heaptap::bpf
