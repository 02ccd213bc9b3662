// SPDX-License-Identifier: Apache-2.0
//
// What profiles need of processes that live: the frees that they hold back, and the names of their threads. Hands fetch
// it in other threads, and the recording's thread waits for none of them: each call below calls `done` once, at once if
// there is nothing to fetch. Without room for an order, or if a process does not answer, a profile is made without
// these: what the threads of the process freed last counts as live, and the threads have the names that the kernel has
// kept. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_DUMPS_PROFILE_ORDERS_H_
#define HEAPTAP_USERSPACE_DUMPS_PROFILE_ORDERS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heaptap/contract.h"
#include "userspace/bpf/entries.h"
#include "userspace/bpf/processes.h"
#include "userspace/crews/hands.h"
#include "userspace/crews/looks.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/sample_record.h"
#include "userspace/profiles/profile_builder.h"
#include "userspace/profiles/profile_plan.h"
#include "userspace/targets/target.h"
#include "userspace/targets/target_table.h"

namespace heaptap::recording {

class ProfileOrders {
 public:
  // All must outlive this object.
  ProfileOrders(const bpf::Entries& entries, bpf::Processes& processes, worker::Looks& orders)
      : entries_(entries), processes_(processes), orders_(orders) {}

  // Takes the frees that a target holds back, so that its books have them. Prints a message once if the kernel has no
  // memory for that.
  void TakeFrees(const Target& target, std::function<void()> done);
  // Like TakeFrees, for all targets, in one order for many processes of a user. Returns how many orders are under way.
  std::shared_ptr<const size_t> TakeAllFrees(TargetTable& targets);

  // Gives a profile of the target the names of its threads. Nobody else uses the profile until `done`.
  void NameThreads(const Target& target, std::shared_ptr<profile::Profile> profile, std::function<void()> done);

  // Builds the records of the latest samples, at most `count`, in another thread, and calls `use` with them there.
  // `done` gets the time that both took, and the reason if there are no records.
  using UseRecords = std::function<void(const profile::SampleRecords&)>;
  using RecordsDone = std::function<void(const absl::Status&, absl::Duration)>;
  void MakeRecords(ProfilePlan plan, uint64_t count, UseRecords use, RecordsDone done);

 private:
  // The frees that one process holds back.
  struct Held {
    profile::ProcessRef process;
    std::string name;      // of the process
    uint64_t address = 0;  // of its struct heaptap_pending
    absl::StatusOr<std::vector<heaptap_free>> frees = std::vector<heaptap_free>();
  };
  // False: the target holds none back.
  bool FindHeld(const Target& target, Held& held) const;
  // REQUIRES: orders_.HasRoom(payer).
  void Fetch(pid_t payer, std::vector<Held> held, std::function<void()> done);
  void Take(const Held& held);

  const bpf::Entries& entries_;
  bpf::Processes& processes_;
  worker::Looks& orders_;
  bool frees_refused_ = false;  // and that was reported
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_DUMPS_PROFILE_ORDERS_H_
