// SPDX-License-Identifier: Apache-2.0
//
// The user id of root, to whom no bounds for users apply.
#ifndef HEAPTAP_USERSPACE_BASE_USER_IDS_H_
#define HEAPTAP_USERSPACE_BASE_USER_IDS_H_

#include <sys/types.h>

namespace heaptap::base {

inline constexpr uid_t kRoot = 0;

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_USER_IDS_H_
