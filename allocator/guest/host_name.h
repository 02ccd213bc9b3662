// SPDX-License-Identifier: Apache-2.0
#ifndef HEAPTAP_ALLOCATOR_GUEST_HOST_NAME_H_
#define HEAPTAP_ALLOCATOR_GUEST_HOST_NAME_H_

namespace heaptap {

// Writes the host's name and version to the control block (contract.h, heaptap_control.host), such as "jemalloc 5.3.0":
// the host's own answer, or else the name of its file. Asks the host, which may allocate. Called once.
void PublishHostName();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_HOST_NAME_H_
