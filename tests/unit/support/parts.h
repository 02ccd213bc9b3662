// SPDX-License-Identifier: Apache-2.0
//
// Changes the parts of targets for tests (userspace/targets/target.h).
#ifndef HEAPTAP_TESTS_UNIT_SUPPORT_PARTS_H_
#define HEAPTAP_TESTS_UNIT_SUPPORT_PARTS_H_

#include <type_traits>
#include <utility>

#include "userspace/targets/target.h"

namespace heaptap::recording {

// Sets a field of a part: Set(target.policy, &Policy::lg_sample, 12).
template <typename State, typename Writer, typename Field>
void Set(Part<State, Writer>& part, Field State::*field, std::type_identity_t<Field> value) {
  State state = *part;
  state.*field = std::move(value);
  part = Part<State, Writer>(std::move(state));
}

}  // namespace heaptap::recording

#endif  // HEAPTAP_TESTS_UNIT_SUPPORT_PARTS_H_
