// SPDX-License-Identifier: Apache-2.0
//
// The state that a recorder saves for its successor, which may have to write the last profile of a process that ended
// in between: the identity of the process and its mappings.
//
// One JSON file for each process, <folder>/<process id>.json, readable by root only, replaced atomically. Not thread
// safe.
#ifndef HEAPTAP_USERSPACE_TARGETS_TARGET_STATE_H_
#define HEAPTAP_USERSPACE_TARGETS_TARGET_STATE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/base/background.h"
#include "userspace/spaces/address_spaces.h"
#include "userspace/targets/target.h"

namespace heaptap::recording {

struct TargetState {
  Target target = {};  // without policy and figures
  AddressSpace space = {};
  uint64_t saved = 0;  // when, in nanoseconds of CLOCK_MONOTONIC; 0: unknown
};

std::string WriteTargetState(const Target& target, const AddressSpace& space);
// InvalidArgument: the text is malformed.
absl::StatusOr<TargetState> ParseTargetState(absl::string_view text);

class TargetStates {
 public:
  // Creates the folder. Keeps the states in it only if the books are `adopted` and have this `layout`; otherwise
  // removes them. `files` writes and removes them from now on: it may wait for the disk. It must outlive this object.
  static absl::StatusOr<TargetStates> Open(const std::string& folder, absl::string_view layout, bool adopted,
                                           base::Background& files);

  // The states of a recorder with another layout; empty if the folder's layout is a different one.
  static TargetStates OfOther(const std::string& folder, absl::string_view layout);

  // Whether many states wait for the disk, so that further ones must be saved later.
  bool IsBusy() const { return files_->size() >= kMaxWaiting; }
  void WaitUntilIdle(base::Instant deadline) { files_->WaitUntilIdle(deadline); }
  // Saves the target as it is now.
  void Save(const Target& target, const AddressSpace& space, std::function<void(const absl::Status&)> done);
  // NotFound: no state was saved.
  absl::StatusOr<TargetState> Load(uint64_t process_id) const;
  void Remove(uint64_t process_id);
  void RemoveAll() const;

 private:
  TargetStates(std::string folder, std::string layout, base::Background* files)
      : folder_(std::move(folder)), layout_(std::move(layout)), files_(files) {}
  // A state has some kilobytes.
  static constexpr size_t kMaxWaiting = 64;
  // Write, with what it calls, runs in another thread.
  absl::Status Write(uint64_t process_id, absl::string_view text) const;
  absl::Status MakeFolder() const;
  void WriteLayout() const;
  std::string Path(uint64_t process_id) const;
  std::string folder_;
  std::string layout_;
  base::Background* files_;              // null: states of another layout, which stay as they are
  absl::flat_hash_set<uint64_t> saved_;  // process ids, also of the earlier recorder
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TARGETS_TARGET_STATE_H_
