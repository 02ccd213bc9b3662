// SPDX-License-Identifier: Apache-2.0
//
// The state that a recorder saves for its successor, which may have to write the last profile of a process that ended
// in between: the identity of the process and its mappings.
//
// One JSON file for each process, <folder>/<process id>.json, readable by root only, replaced atomically. Not thread
// safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_TARGET_STATE_H_
#define HEAPTAP_USERSPACE_RECORDING_TARGET_STATE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/recording/address_spaces.h"
#include "userspace/recording/target.h"

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
  // removes them.
  static absl::StatusOr<TargetStates> Open(const std::string& folder, absl::string_view layout, bool adopted);

  // The states of a recorder with another layout; empty if the folder's layout is a different one.
  static TargetStates OfOther(const std::string& folder, absl::string_view layout);

  absl::Status Save(const Target& target, const AddressSpace& space) const;
  // NotFound: no state was saved.
  absl::StatusOr<TargetState> Load(uint64_t process_id) const;
  void Remove(uint64_t process_id) const;
  void RemoveAll() const;

 private:
  TargetStates(std::string folder, std::string layout) : folder_(std::move(folder)), layout_(std::move(layout)) {}
  absl::Status MakeFolder() const;
  void WriteLayout() const;
  std::string Path(uint64_t process_id) const;
  std::string folder_;
  std::string layout_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_TARGET_STATE_H_
