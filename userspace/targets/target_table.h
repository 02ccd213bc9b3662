// SPDX-License-Identifier: Apache-2.0
//
// The targets of a recording. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_TARGETS_TARGET_TABLE_H_
#define HEAPTAP_USERSPACE_TARGETS_TARGET_TABLE_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/base/thread_checker.h"
#include "userspace/targets/policy.h"
#include "userspace/targets/target.h"

namespace heaptap::recording {

// References to targets stay valid until Erase or Replace.
class TargetTable {
 public:
  // The target with this process id, or a new one with this policy.
  Target& Add(uint64_t process_id, pid_t pid, const Policy& policy);
  // Null: there is none.
  Target* Find(uint64_t process_id);
  // The target that runs under this PID now.
  Target* FindRunning(pid_t pid);
  // Process ids of the targets with this PID, including ended ones.
  std::vector<uint64_t> WithPid(pid_t pid) const;
  void Erase(uint64_t process_id);
  // Replaces the target by what an earlier recorder knew of it. Its policy stays.
  void Restore(Target& target, Target saved);
  // The target goes on under another process id.
  Target& Replace(uint64_t ended_id, uint64_t new_id);

  // In the order of process ids.
  auto begin() { return targets_.begin(); }
  auto end() { return targets_.end(); }
  auto upper_bound(uint64_t process_id) { return targets_.upper_bound(process_id); }
  size_t size() const { return targets_.size(); }
  void clear();

 private:
  Target& Insert(uint64_t process_id, Target target);

  std::map<uint64_t, Target> targets_;
  absl::flat_hash_map<pid_t, std::vector<uint64_t>> by_pid_;  // without targets whose PID is unknown (0)
  base::ThreadChecker thread_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TARGETS_TARGET_TABLE_H_
