// SPDX-License-Identifier: Apache-2.0
//
// Areas as maps of the kernel: an area is an array that processes can map, and an entry of the map `areas`. Part of
// KernelBooks. Thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_KERNEL_AREAS_H_
#define HEAPTAP_USERSPACE_BPF_KERNEL_AREAS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "bpf/books.h"
#include "heaptap/contract.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/bpf/areas.h"
#include "userspace/bpf/entries.h"

struct heaptap_bpf;

namespace heaptap::bpf {

// What a process has counted, as a tally. The numbers are the process's; a number that no process can reach counts as
// nothing, and no more is freed than allocated.
heaptap_tally TallyOf(const heaptap_counts& counts);

class KernelAreas final : public Areas {
 public:
  KernelAreas() = default;
  ~KernelAreas() override;

  // To be called once, before anything else. `skeleton` must outlive this object. `give_area`: the program.
  void Open(const heaptap_bpf* skeleton, int give_area);

  absl::Status Prepare() override;
  absl::StatusOr<int> Give(pid_t tgid, uint64_t process_id, uint32_t number) override;

  // Calls `visit(process_id, entry)` for the counts of all processes. Several entries may have the same stack and
  // thread.
  void VisitCounts(absl::FunctionRef<void(uint64_t, const TallyEntry&)> visit) const;
  void Forget(const std::set<uint64_t>& process_ids);

 private:
  struct Area {
    uint32_t slot;
    base::FileDescriptor map;
    char* memory;  // HEAPTAP_AREA_BYTES
  };
  absl::StatusOr<Area> Make(uint32_t slot) const;
  void Release(const Area& area);
  void Run();
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const heaptap_bpf* skeleton_ = nullptr;
  int give_area_ = -1;
  std::thread thread_;
  mutable absl::Mutex mutex_;
  bool shall_end_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_failed_ ABSL_GUARDED_BY(mutex_) = false;  // the kernel makes no areas
  std::vector<Area> spares_ ABSL_GUARDED_BY(mutex_);
  std::vector<Area> old_ ABSL_GUARDED_BY(mutex_);  // of books that are forgotten; the thread removes them
  std::vector<uint32_t> free_slots_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::vector<Area>> given_ ABSL_GUARDED_BY(mutex_);  // by process id
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_KERNEL_AREAS_H_
