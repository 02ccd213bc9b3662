// SPDX-License-Identifier: Apache-2.0
#ifndef HEAPTAP_TESTS_UNIT_SUPPORT_ANSWERED_H_
#define HEAPTAP_TESTS_UNIT_SUPPORT_ANSWERED_H_

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace heaptap {

// What `ask` passes to its callback, before it returns.
template <typename Answer, typename Ask>
Answer Answered(Ask ask) {
  std::optional<Answer> answer;
  ask([&answer](Answer passed) { answer = std::move(passed); });
  EXPECT_TRUE(answer.has_value()) << "there was no answer";
  return answer.has_value() ? *std::move(answer) : Answer(absl::InternalError("no answer"));
}

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_SUPPORT_ANSWERED_H_
