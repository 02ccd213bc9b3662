// SPDX-License-Identifier: Apache-2.0
//
// The kernel's books: loads the eBPF programs and maps, follows the life of processes, reads the books.
//
// bpf/books.h describes the maps. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_KERNEL_BOOKS_H_
#define HEAPTAP_USERSPACE_BPF_KERNEL_BOOKS_H_

#include <errno.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/kernel_unwind_maps.h"
#include "userspace/bpf/pins.h"

struct bpf_map;
struct heaptap_bpf;
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
  static std::string Layout();

  // Many CPUs can fill the ring buffer as fast as it is read. Events beyond this number wait for the next TakeEvents.
  static constexpr size_t kMaxEventsAtOnce = 1 << 16;
  static constexpr int kEnough = -EAGAIN;

  std::string layout() const override { return Layout(); }
  bool adopted() const override { return adopted_; }
  bool HasSizes(const MapSizes& sizes) const override;
  absl::StatusOr<uint64_t> Track(pid_t tgid, bool follow, const Triggers& triggers) override;
  bool IsCurrent(pid_t tgid, uint64_t process_id) const override;
  void Untrack(pid_t tgid) override;
  absl::Status SetSettings(heaptap_settings settings) override;
  bool Configure(pid_t tgid, uint64_t process_id, const ProcessSettings& settings) override;
  absl::StatusOr<heaptap_process> ReadProcess(pid_t tgid) const override;
  int events_fd() const override;
  absl::StatusOr<std::vector<heaptap_event>> TakeEvents() override;
  uint64_t EventsLost() const override;
  absl::StatusOr<std::map<uint64_t, RecordedProcess>> ReadProcesses() const override;
  absl::StatusOr<std::map<uint64_t, Unnoticed>> ReadUnnoticed() const override;
  bool IsUnnoticed(uint64_t process_id) const override;
  absl::StatusOr<std::vector<TallyEntry>> ReadTallies(uint64_t process_id) const override;
  absl::StatusOr<std::map<uint64_t, std::vector<TallyEntry>>> ReadAllTallies() const override;
  absl::StatusOr<std::map<uint64_t, LiveTotals>> ReadLiveTotals() const override;
  absl::StatusOr<heaptap_stack> ReadStack(uint64_t stack_id) const override;
  absl::StatusOr<ThreadName> ReadThreadName(uint64_t process_id, uint32_t tid) const override;
  absl::StatusOr<std::vector<heaptap_record>> ReadRecords(uint64_t process_id) const override;
  Losses ReadLosses(uint64_t process_id) const override;
  bool Fold(pid_t tgid, uint64_t process_id, const TallyEntry& entry, uint32_t threads_begun) override;
  double EventsFill() const override { return events_fill_; }
  std::map<std::string, uint64_t> KernelMemory() const override;
  absl::Status Sweep() override;
  absl::Status Forget(const std::set<uint64_t>& process_ids) override;
  void MarkClosed(uint64_t process_id) override;
  absl::StatusOr<std::set<uint64_t>> ReadClosed() const override;
  UnwindMaps& unwind() override { return unwind_; }
  const UnwindMaps& unwind() const override { return unwind_; }
  int program(Program which) const override { return programs_[static_cast<size_t>(which)].get(); }

 private:
  KernelBooks() = default;
  absl::Status Open(const MapSizes& sizes, const Pins* pins);
  std::vector<std::pair<bpf_map*, uint32_t>> SizedMaps(const MapSizes& sizes) const;
  void SetSizes(const MapSizes& sizes);
  absl::Status LoadObject(bool for_everyone);
  absl::Status Prepare(const MapSizes& sizes);
  absl::Status FillPrograms();
  absl::Status AttachLifecycle();
  absl::Status PinAll(const Pins& pins);
  absl::Status Adopt(const Pins& pins);
  absl::Status UseMaps();
  void SetCounter(uint32_t which, uint64_t value);
  uint64_t ReadCounter(uint32_t which) const;

  heaptap_bpf* object_ = nullptr;
  std::array<base::FileDescriptor, kPrograms> programs_;
  ring_buffer* ring_ = nullptr;
  KernelUnwindMaps unwind_;
  bool adopted_ = false;
  std::vector<heaptap_event> events_;
  double events_fill_ = 0;
  std::vector<uint64_t> forgotten_;
  uint64_t sweep_at_ = 0;         // entries of `live` at which the programs ask for a sweep
  uint64_t sweep_again_at_ = 0;   // until this time, only a filling `live` is swept; 0: no such time
  uint64_t next_process_id_ = 1;  // odd ones are ours, even ones the programs'
  uint32_t flags_of_all_ = 0;     // heaptap_settings.flags
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_KERNEL_BOOKS_H_
