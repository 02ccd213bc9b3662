// SPDX-License-Identifier: Apache-2.0
//
// Formats JSON documents for stdout. Functions here are thread safe.
#ifndef HEAPTAP_USERSPACE_CLI_WORDS_JSON_TEXT_H_
#define HEAPTAP_USERSPACE_CLI_WORDS_JSON_TEXT_H_

#include <string>

#include "userspace/json/json.h"

namespace heaptap::cli {

// The document with one value per line, safe for a terminal.
inline std::string ToText(const json::Json& document) {
  return document.Text({.indent = 2, .only_ascii = true}) + "\n";
}

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WORDS_JSON_TEXT_H_
