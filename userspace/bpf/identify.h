// SPDX-License-Identifier: Apache-2.0
//
// The kernel's name for an open file.
#ifndef HEAPTAP_USERSPACE_BPF_IDENTIFY_H_
#define HEAPTAP_USERSPACE_BPF_IDENTIFY_H_

#include "absl/status/statusor.h"
#include "bpf/commands.h"

namespace heaptap::bpf {

// Asks the program `identify` which file is open at `fd`: the file's key in the maps, and the kernel's address of the
// inode behind a mapping of the file: not 0, and unique while the file is in use. On overlayfs it is the inode beneath,
// which several mounts may show as different files. Two subvolumes of a btrfs can have two inodes with one key.
// NotFound: the file cannot be mapped. Thread-safe.
absl::StatusOr<heaptap_identify> Identify(int program, int fd);

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_IDENTIFY_H_
