// SPDX-License-Identifier: Apache-2.0
//
// The keys of files in the kernel's maps (struct heaptap_file_key). Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_FILE_KEY_H_
#define HEAPTAP_USERSPACE_BPF_FILE_KEY_H_

#include <cstdint>
#include <tuple>

#include "bpf/unwind.h"
#include "userspace/elf/mappings.h"

namespace heaptap::bpf {

// The device of a mapped file as in its key: the kernel's dev_t (include/linux/kdev_t.h).
inline uint32_t KernelDevice(const elf::Mapping& mapping) {
  constexpr uint32_t kMinorBits = 20;
  return mapping.device_major << kMinorBits | mapping.device_minor;
}

// Files of one device are neighbours, and so are the files that had one inode number.
struct FileKeyLess {
  bool operator()(const heaptap_file_key& a, const heaptap_file_key& b) const {
    return std::tie(a.device, a.inode, a.generation) < std::tie(b.device, b.inode, b.generation);
  }
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_FILE_KEY_H_
