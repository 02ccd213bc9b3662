// SPDX-License-Identifier: Apache-2.0
//
// The page's script and style, bundled from this folder at build time and embedded into the program.
#ifndef HEAPTAP_USERSPACE_WEB_ASSETS_H_
#define HEAPTAP_USERSPACE_WEB_ASSETS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace heaptap::web {

// Thread-safe; valid for ever.
absl::string_view Script();
absl::string_view Style();

// The document of the daemon, which refers to /page.js and /page.css.
std::string ServedPage();

// The document as one file, with a profile inside (views/page_data.h). `title`: any text. It asks for nothing from a
// network, and its policy forbids that; the policy allows no script and no style but the page's own. Thread-safe.
std::string SinglePage(absl::string_view title, absl::string_view profile_json);

}  // namespace heaptap::web

#endif  // HEAPTAP_USERSPACE_WEB_ASSETS_H_
