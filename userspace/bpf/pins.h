// SPDX-License-Identifier: Apache-2.0
//
// The folder of a BPF file system where maps, programs and links of a recording outlive the collector.
//
//   <base>/                    belongs to root alone; one collector at a time locks it
//   <base>/<layout>/<name>     pinned by a collector whose maps have that layout
//
// Names consist of letters, digits, '_' and '-'. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_PINS_H_
#define HEAPTAP_USERSPACE_BPF_PINS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::bpf {

class Pins {
 public:
  // Makes and locks the folder. If it is below /sys/fs/bpf and no BPF file system is mounted there, mounts one.
  // Waits half a second for the lock. FailedPrecondition: another collector uses the folder; it does not belong to root
  // alone; no BPF file system.
  static absl::StatusOr<Pins> Open(const std::string& base, absl::string_view layout);
  // The holder of the lock removes the folders if nothing is pinned, so that a failed start leaves none.
  ~Pins();
  Pins(Pins&&) = default;
  Pins& operator=(Pins&&) = default;

  // PID of the collector that uses the folder; 0: none, or unknown.
  static pid_t Holder(const std::string& base);

  const std::string& folder() const { return folder_; }
  const std::string& layout() const { return layout_; }

  absl::Status Pin(int fd, const std::string& name) const;
  // A new descriptor of a pin. NotFound: there is no such pin.
  absl::StatusOr<base::FileDescriptor> Get(const std::string& name) const;
  bool Has(const std::string& name) const;
  void Remove(const std::string& name) const;
  std::vector<std::string> Names() const;
  // Removes all pins, and the folders if they are empty. The kernel frees objects that have no other reference.
  void RemoveAll() const;

  // Other layouts that have pins.
  std::vector<std::string> OtherLayouts() const;
  // Pins of another layout in the same base.
  Pins Other(const std::string& layout) const;

 private:
  Pins(std::string base, std::string layout);
  void RemoveFolders() const;
  std::string base_;
  std::string layout_;
  std::string folder_;
  base::FileDescriptor lock_;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_PINS_H_
