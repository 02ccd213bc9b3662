// SPDX-License-Identifier: Apache-2.0
//
// JSON documents as text for stdout. Functions here are thread safe.
#ifndef HEAPTAP_USERSPACE_CLI_JSON_TEXT_H_
#define HEAPTAP_USERSPACE_CLI_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>

namespace heaptap::cli {

// The document with one value per line, safe for a terminal: whatever is not ASCII is escaped, control characters among
// it, and bytes that are not UTF-8 are replaced.
inline std::string ToText(const nlohmann::ordered_json& document) {
  return document.dump(2, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_JSON_TEXT_H_
