// SPDX-License-Identifier: Apache-2.0
//
// Where the maps, programs and links of a recording stay when the collector ends: a folder of the BPF file system.
//
//   <base>/                    root's alone; one collector at a time has it locked
//   <base>/<layout>/<name>     what was pinned, by a collector whose maps have that layout
//
// Names are words of letters, digits, '_' and '-'. Not thread safe.
#ifndef HEAPTAP_USERSPACE_BPF_PINS_H_
#define HEAPTAP_USERSPACE_BPF_PINS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/elf/file_descriptor.h"

namespace heaptap::bpf {

class Pins {
 public:
  // Makes the folder, and mounts a BPF file system on /sys/fs/bpf if it shall be there and there is none (it is not
  // mounted everywhere). FailedPrecondition: another collector has it; it is somebody else's than root's; no BPF file
  // system.
  static absl::StatusOr<Pins> Open(const std::string& base, absl::string_view layout);

  // The collector that has the folder, by PID; 0: none, or nobody knows.
  static pid_t Holder(const std::string& base);

  const std::string& folder() const { return folder_; }
  const std::string& layout() const { return layout_; }

  absl::Status Pin(int fd, const std::string& name) const;
  // A new descriptor of what is pinned. NotFound.
  absl::StatusOr<elf::FileDescriptor> Get(const std::string& name) const;
  bool Has(const std::string& name) const;
  void Remove(const std::string& name) const;
  std::vector<std::string> Names() const;
  // Everything, and the folders if they are empty then. What nobody holds any more is gone for the kernel.
  void RemoveAll() const;

  // Layouts of which something is there, but for this one.
  std::vector<std::string> OtherLayouts() const;
  // Pins of another layout in the same base.
  Pins Other(const std::string& layout) const;

 private:
  Pins(std::string base, std::string layout);
  std::string base_;
  std::string layout_;
  std::string folder_;
  elf::FileDescriptor lock_;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_PINS_H_
