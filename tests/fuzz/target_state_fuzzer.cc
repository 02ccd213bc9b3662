// SPDX-License-Identifier: Apache-2.0
//
// The saved state of a process, of any text: it is refused with a reason, or it is one that is written and read again
// as the same.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "userspace/targets/target_state.h"

namespace {

using heaptap::recording::ParseTargetState;
using heaptap::recording::TargetState;
using heaptap::recording::WriteTargetState;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const absl::StatusOr<heaptap::recording::TargetState> state = heaptap::recording::ParseTargetState(text);
  if (!state.ok()) {
    Check(absl::IsInvalidArgument(state.status()));
    return 0;
  }
  Check(state->target.image->lg_sample <= HEAPTAP_MAX_LG_SAMPLE);
  const std::string written = heaptap::recording::WriteTargetState(state->target, state->space);
  const absl::StatusOr<heaptap::recording::TargetState> again = heaptap::recording::ParseTargetState(written);
  Check(again.ok());
  Check(heaptap::recording::WriteTargetState(again->target, again->space) == written);
  return 0;
}
