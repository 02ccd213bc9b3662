// SPDX-License-Identifier: Apache-2.0
//
// Gives areas to the processes that ask for them (contract.h, AREAS). Hands do that in another thread. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_TARGETS_AREA_GIFTS_H_
#define HEAPTAP_USERSPACE_TARGETS_AREA_GIFTS_H_

#include "absl/status/status.h"
#include "heaptap/contract.h"
#include "userspace/bpf/books.h"
#include "userspace/crews/looks.h"
#include "userspace/targets/target.h"

namespace heaptap::recording {

class AreaGifts {
 public:
  // Both must outlive this object. `gives`: whether the recording gives areas; else it refuses.
  AreaGifts(bpf::Books& books, worker::Looks& orders, bool gives) : books_(books), orders_(orders), gives_(gives) {}

  // Begins to make areas ahead.
  absl::Status Prepare();
  // Answers HEAPTAP_ASK_AREA. A process that cannot be answered goes on without an area.
  void Answer(const Target& target, const heaptap_dump_request& request);

 private:
  bpf::Books& books_;
  worker::Looks& orders_;
  const bool gives_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TARGETS_AREA_GIFTS_H_
