// SPDX-License-Identifier: Apache-2.0
//
// `heaptap report --svg`: a flame graph as a picture, with the outermost functions on top.
//
// Format: SVG 1.1 without scripts and without references, so it can be shown anywhere. A box is as wide as the share of
// its node; its title has the whole name and the figures.
#ifndef HEAPTAP_USERSPACE_VIEWS_FLAME_SVG_H_
#define HEAPTAP_USERSPACE_VIEWS_FLAME_SVG_H_

#include <string>

#include "userspace/report/summary_text.h"
#include "userspace/report/tree.h"

namespace heaptap::report {

// A tree of MakeTree. Nodes that would be narrower than a third of a pixel, or that are negative, are left out.
// Thread-safe; takes linear time.
std::string FlameSvg(const Tree& tree, const Subject& subject, const Show& show);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_VIEWS_FLAME_SVG_H_
