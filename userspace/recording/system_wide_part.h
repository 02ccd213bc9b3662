// SPDX-License-Identifier: Apache-2.0
//
// What a system-wide recording adds to the handling of events. This base class adds nothing.
#ifndef HEAPTAP_USERSPACE_RECORDING_SYSTEM_WIDE_PART_H_
#define HEAPTAP_USERSPACE_RECORDING_SYSTEM_WIDE_PART_H_

#include <functional>

#include "bpf/events.h"
#include "userspace/base/clock.h"
#include "userspace/targets/target.h"

namespace heaptap::recording {

class SystemWidePart {
 public:
  SystemWidePart() = default;
  virtual ~SystemWidePart() = default;
  SystemWidePart(const SystemWidePart&) = delete;
  SystemWidePart& operator=(const SystemWidePart&) = delete;

  virtual void BeginBatch(base::Instant) {}
  virtual void EndBatch() {}
  // A process has hit a probe for the first time.
  virtual void HandleEnter(const heaptap_event&) {}
  // The process has fired heaptap:start. `take` takes control of it, once its policy is known.
  virtual void HandleStart(Target& target, const std::function<void(Target&)>& take) { take(target); }
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_SYSTEM_WIDE_PART_H_
