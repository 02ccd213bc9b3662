// SPDX-License-Identifier: Apache-2.0
#ifndef HEAPTAP_USERSPACE_CLI_WORDS_URL_TEXT_H_
#define HEAPTAP_USERSPACE_CLI_WORDS_URL_TEXT_H_

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace heaptap::cli {

// Any bytes as the value of a parameter in a URL.
inline std::string UrlText(absl::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (absl::ascii_isalnum(letter) || letter == '-' || letter == '_' || letter == '.') {
      result.push_back(letter);
    } else {
      absl::StrAppend(&result, "%", absl::Hex(static_cast<unsigned char>(letter), absl::kZeroPad2));
    }
  }
  return result;
}

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WORDS_URL_TEXT_H_
