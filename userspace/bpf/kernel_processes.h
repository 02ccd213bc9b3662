// SPDX-License-Identifier: Apache-2.0
//
// The kernel's maps of processes. Part of KernelBooks. Not thread-safe, except IsCurrent.
#ifndef HEAPTAP_USERSPACE_BPF_KERNEL_PROCESSES_H_
#define HEAPTAP_USERSPACE_BPF_KERNEL_PROCESSES_H_

#include <sys/types.h>

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/bpf/kernel_object.h"
#include "userspace/bpf/processes.h"

namespace heaptap::bpf {

class KernelProcesses final : public Processes {
 public:
  // `object` must outlive this object.
  explicit KernelProcesses(KernelObject& object) : object_(object) {}
  // To be called once, before anything else, when `object` is open.
  void Open() { next_id_ = object_.ReadCounter(HEAPTAP_COUNTER_NEXT_COLLECTOR_ID); }

  absl::StatusOr<uint64_t> Track(pid_t tgid, bool follow, const Triggers& triggers) override;
  bool IsCurrent(pid_t tgid, uint64_t process_id) const override;
  void Untrack(pid_t tgid) override;
  absl::Status RestrictTo(absl::Span<const int> groups) override;
  absl::Status SetSettings(heaptap_settings settings) override;
  absl::Status Configure(pid_t tgid, uint64_t process_id, const ProcessSettings& settings) override;
  absl::Status TakeFrees(pid_t tgid, uint64_t process_id, absl::Span<const heaptap_free> frees) override;
  absl::Status CountUnseenBeginning(pid_t tgid, uint64_t process_id, uint64_t held) override;
  void UncountBeginning(uint64_t process_id) override;
  absl::StatusOr<heaptap_process> Read(pid_t tgid) const override;
  absl::StatusOr<std::map<uint64_t, RecordedProcess>> ReadAll() const override;
  absl::StatusOr<std::map<uint64_t, EndedBooks>> ReadUnnoticed() const override;
  bool IsUnnoticed(uint64_t process_id) const override;

 private:
  KernelObject& object_;
  uint64_t next_id_ = 0;       // odd ones are ours (IsTracked), even ones the programs'
  uint32_t flags_of_all_ = 0;  // heaptap_settings.flags
  uint32_t groups_ = 0;        // heaptap_settings.groups
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_KERNEL_PROCESSES_H_
