// SPDX-License-Identifier: Apache-2.0
//
// The kernel's books: takes the events of the eBPF programs, sweeps and forgets. Its parts read and change the maps.
//
// bpf/books.h describes the maps. Thread safety: as in userspace/bpf/books.h.
#ifndef HEAPTAP_USERSPACE_BPF_KERNEL_BOOKS_H_
#define HEAPTAP_USERSPACE_BPF_KERNEL_BOOKS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/base/mutex.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/kernel_areas.h"
#include "userspace/bpf/kernel_entries.h"
#include "userspace/bpf/kernel_object.h"
#include "userspace/bpf/kernel_processes.h"
#include "userspace/bpf/kernel_unwind_maps.h"
#include "userspace/bpf/pins.h"

struct ring_buffer;

namespace heaptap::bpf {

class KernelBooks final : public Books {
 public:
  // Loads programs and maps, and begins to follow fork, exec and exit of tracked processes. PermissionDenied names the
  // missing capabilities, FailedPrecondition what the kernel lacks.
  static absl::StatusOr<std::unique_ptr<Books>> Load(const MapSizes& sizes);
  // The same, and pins everything. If an earlier collector of this layout left its recording there, takes that over,
  // with the sizes it has. `pins` must outlive the books.
  static absl::StatusOr<std::unique_ptr<Books>> LoadOrAdopt(const MapSizes& sizes, const Pins& pins);
  ~KernelBooks() override;

  // Identifies the programs and maps of this build.
  static std::string Layout() { return KernelObject::Layout(); }

  std::string layout() const override { return Layout(); }
  bool adopted() const override { return object_.adopted(); }
  bool HasSizes(const MapSizes& sizes) const override { return object_.HasSizes(sizes); }
  const Entries& entries() const override { return entries_; }
  Processes& processes() override { return processes_; }
  const Processes& processes() const override { return processes_; }
  UnwindMaps& unwind() override { return unwind_; }
  const UnwindMaps& unwind() const override { return unwind_; }
  Areas* areas() override { return &areas_; }
  int events_fd() const override;
  absl::StatusOr<std::vector<heaptap_event>> TakeEvents() override;
  uint64_t EventsLost() const override;
  double EventsFill() const override { return events_fill_; }
  bool Fold(pid_t tgid, uint64_t process_id, const TallyEntry& entry, uint32_t threads_begun) override;
  absl::Status Sweep() override;
  bool IsSweepDue() override;
  absl::Status Forget(const std::set<uint64_t>& process_ids) override;
  void MarkClosed(uint64_t process_id) override;
  absl::StatusOr<std::set<uint64_t>> ReadClosed() const override;
  KernelMemory Memory() const override;
  int program(Program which) const override { return object_.program(which); }

 private:
  KernelBooks() = default;
  absl::Status Open(const MapSizes& sizes, const Pins* pins);

  KernelObject object_;
  KernelAreas areas_;
  KernelEntries entries_{areas_};
  KernelProcesses processes_{object_};
  KernelUnwindMaps unwind_;
  ring_buffer* ring_ = nullptr;
  std::vector<heaptap_event> events_;
  double events_fill_ = 0;
  uint64_t deleted_tallies_ = 0;  // that the programs still count
  uint64_t sweep_at_ = 0;         // entries of `live` at which the programs ask for a sweep
  base::Mutex mutex_;
  std::vector<uint64_t> forgotten_ ABSL_GUARDED_BY(mutex_);  // have live objects until the next sweep
  // When the first of them was forgotten, in nanoseconds. Those of an earlier collector have waited long enough.
  uint64_t forgotten_since_ ABSL_GUARDED_BY(mutex_) = 0;
  // Until this time, only a filling `live` is swept; 0: no such time.
  uint64_t sweep_again_at_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_KERNEL_BOOKS_H_
