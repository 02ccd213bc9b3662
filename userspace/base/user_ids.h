// SPDX-License-Identifier: Apache-2.0
//
// User ids with a meaning of their own.
#ifndef HEAPTAP_USERSPACE_BASE_USER_IDS_H_
#define HEAPTAP_USERSPACE_BASE_USER_IDS_H_

#include <sys/types.h>

namespace heaptap::base {

// The bounds for users do not apply to root.
inline constexpr uid_t kRoot = 0;

// Stands for the owner of a process that is not known, or that belongs to more than one user. No process has this id.
inline constexpr uid_t kUnknownUser = static_cast<uid_t>(-1);

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_USER_IDS_H_
