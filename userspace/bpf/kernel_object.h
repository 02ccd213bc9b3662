// SPDX-License-Identifier: Apache-2.0
//
// The eBPF object in the kernel: loads its programs and maps, or takes over those of an earlier collector.
//
// Not thread-safe. Before Open has succeeded, only the destructor may be called.
#ifndef HEAPTAP_USERSPACE_BPF_KERNEL_OBJECT_H_
#define HEAPTAP_USERSPACE_BPF_KERNEL_OBJECT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/pins.h"

struct bpf_map;
struct heaptap_bpf;

namespace heaptap::bpf {

class KernelObject {
 public:
  KernelObject() = default;
  ~KernelObject();
  KernelObject(const KernelObject&) = delete;
  KernelObject& operator=(const KernelObject&) = delete;

  // Identifies the programs and maps of this build.
  static std::string Layout();

  // Loads the object, or takes over what an earlier collector of this layout has left in `pins`, which may be null.
  // PermissionDenied names the missing capabilities, FailedPrecondition what the kernel lacks.
  absl::Status Open(const MapSizes& sizes, const Pins* pins);
  // Begins to follow fork, exec and exit of tracked processes, and pins everything. Nothing is left to do for a
  // recording that was taken over.
  absl::Status Start(const Pins* pins);

  bool adopted() const { return adopted_; }
  // Whether an earlier collector has pinned all of a recording.
  static bool HasRecording(const Pins& pins);
  bool HasSizes(const MapSizes& sizes) const;
  // The skeleton, with its maps.
  heaptap_bpf* get() const { return object_; }
  heaptap_bpf* operator->() const { return object_; }
  // Entries of `live` at which the programs ask for a sweep.
  uint64_t SweepAt() const;
  // Like Books::program.
  int program(Program which) const { return programs_[static_cast<size_t>(which)].get(); }
  // The array `counters`, by enum heaptap_counter.
  void SetCounter(uint32_t which, uint64_t value);
  uint64_t ReadCounter(uint32_t which) const;

 private:
  std::vector<std::pair<bpf_map*, uint32_t>> SizedMaps(const MapSizes& sizes) const;
  void SetSizes(const MapSizes& sizes);
  absl::Status Load(bool for_everyone);
  absl::Status Prepare();
  absl::Status FillOwners();
  absl::Status FillPrograms();
  absl::Status AttachLifecycle();
  absl::Status PinAll(const Pins& pins);
  absl::Status Adopt(const Pins& pins);

  heaptap_bpf* object_ = nullptr;
  std::array<base::FileDescriptor, kPrograms> programs_;
  bool adopted_ = false;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_KERNEL_OBJECT_H_
