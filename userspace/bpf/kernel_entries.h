// SPDX-License-Identifier: Apache-2.0
//
// Reads the entries of the kernel's maps. Part of KernelBooks. Thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_KERNEL_ENTRIES_H_
#define HEAPTAP_USERSPACE_BPF_KERNEL_ENTRIES_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "userspace/bpf/entries.h"
#include "userspace/bpf/kernel_areas.h"

struct heaptap_bpf;

namespace heaptap::bpf {

class KernelEntries final : public Entries {
 public:
  // `areas` must outlive this object.
  explicit KernelEntries(const KernelAreas& areas) : areas_(areas) {}
  // To be called once, before anything else. `skeleton` must outlive this object.
  void Open(const heaptap_bpf* skeleton) { skeleton_ = skeleton; }

  absl::Status VisitTallies(absl::FunctionRef<void(uint64_t, const TallyEntry&)> visit) const override;
  absl::StatusOr<std::vector<TallyEntry>> ReadTallies(uint64_t process_id) const override;
  absl::StatusOr<std::map<uint64_t, std::vector<TallyEntry>>> ReadAllTallies() const override;
  absl::StatusOr<std::map<uint64_t, LiveTotals>> ReadLiveTotals() const override;
  absl::Status VisitLive(uint64_t process_id, absl::FunctionRef<void(const heaptap_live&)> visit) const override;
  absl::StatusOr<std::vector<heaptap_record>> ReadRecords(uint64_t process_id) const override;
  absl::StatusOr<heaptap_stack> ReadStack(uint64_t stack_id) const override;
  absl::StatusOr<ThreadName> ReadThreadName(uint64_t process_id, uint32_t tid) const override;
  Losses ReadLosses(uint64_t process_id) const override;
  std::map<uint64_t, Losses> ReadAllLosses() const override;

 private:
  // What the processes have counted themselves, by process id, stack id and thread.
  using Counted = absl::flat_hash_map<std::tuple<uint64_t, uint64_t, uint32_t>, heaptap_tally>;
  Counted ReadCounted() const;

  const KernelAreas& areas_;
  const heaptap_bpf* skeleton_ = nullptr;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_KERNEL_ENTRIES_H_
