// SPDX-License-Identifier: Apache-2.0
//
// What a recorder must leave in writing, so that the one after it can make the last profile of a process that ended in
// between: whose books they are, and what the process had mapped.
//
// One JSON file for each process, <folder>/<process id>.json, root's alone, replaced as a whole. Not thread safe.
#ifndef HEAPTAP_USERSPACE_SERVICE_TARGET_STATE_H_
#define HEAPTAP_USERSPACE_SERVICE_TARGET_STATE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/service/address_spaces.h"
#include "userspace/service/target.h"

namespace heaptap::service {

struct TargetState {
  Target target = {};  // without policy and figures
  AddressSpace space = {};
};

std::string WriteTargetState(const Target& target, const AddressSpace& space);
// InvalidArgument: it is no such text.
absl::StatusOr<TargetState> ParseTargetState(absl::string_view text);

class TargetStates {
 public:
  // Makes the folder. What is in it is of the books in `layout` of this boot; all else is removed.
  static absl::StatusOr<TargetStates> Open(const std::string& folder, absl::string_view layout, bool adopted);

  // What a recorder of another layout has left there; nothing, if it is another's.
  static TargetStates OfOther(const std::string& folder, absl::string_view layout);

  absl::Status Save(const Target& target, const AddressSpace& space) const;
  // NotFound: nothing was saved.
  absl::StatusOr<TargetState> Load(uint64_t process_id) const;
  void Remove(uint64_t process_id) const;
  void RemoveAll() const;

 private:
  explicit TargetStates(std::string folder) : folder_(std::move(folder)) {}
  std::string Path(uint64_t process_id) const;
  std::string folder_;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_TARGET_STATE_H_
