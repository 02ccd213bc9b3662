// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/identify.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/bpf/kernel_error.h"

namespace heaptap::bpf {
namespace {

// bpf_find_vma() fails while another thread of the collector holds the lock of the list of mappings, so it is repeated:
// at first at once, then each millisecond, for two seconds in all. On a busy machine that thread may have to wait.
constexpr int kQuickTries = 1000;
constexpr int kBusyTries = kQuickTries + 2000;
constexpr absl::Duration kPause = absl::Milliseconds(1);

}  // namespace

absl::StatusOr<heaptap_identify> Identify(int program, int fd) {
  // Mapped but never read: the file may be truncated at any time.
  void* page = mmap(nullptr, 1, PROT_READ, MAP_PRIVATE, fd, 0);
  if (page == MAP_FAILED) return absl::NotFoundError(absl::StrCat("mapping a file: ", strerror(errno)));
  heaptap_identify argument = {.address = reinterpret_cast<uintptr_t>(page), .file = {}, .inode_address = 0};
  LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &argument, .ctx_size_in = sizeof(argument));
  int error = bpf_prog_test_run_opts(program, &options);
  for (int tries = 0; error == 0 && tries < kBusyTries; tries++) {
    if (argument.file.inode != 0 && argument.inode_address != 0) break;
    if (tries < kQuickTries) {
      sched_yield();
    } else {
      base::Sleep(kPause);
    }
    error = bpf_prog_test_run_opts(program, &options);
  }
  munmap(page, 1);
  if (error != 0) return KernelError(error, "identifying a file");
  if (argument.file.inode == 0 || argument.inode_address == 0) return absl::NotFoundError("the file has no inode");
  return argument;
}

}  // namespace heaptap::bpf
