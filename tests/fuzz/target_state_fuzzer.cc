// SPDX-License-Identifier: Apache-2.0
//
// The saved state of a process, of any text: it is refused with a reason, or it is one that is written and read again
// as the same.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "userspace/service/target_state.h"

namespace {

using heaptap::service::ParseTargetState;
using heaptap::service::TargetState;
using heaptap::service::WriteTargetState;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const absl::StatusOr<TargetState> state = ParseTargetState(text);
  if (!state.ok()) {
    Check(absl::IsInvalidArgument(state.status()));
    return 0;
  }
  Check(state->target.own_lg_sample <= HEAPTAP_MAX_LG_SAMPLE);
  const std::string written = WriteTargetState(state->target, state->space);
  const absl::StatusOr<TargetState> again = ParseTargetState(written);
  Check(again.ok());
  Check(WriteTargetState(again->target, again->space) == written);
  return 0;
}
