// SPDX-License-Identifier: Apache-2.0
//
// The start of the guest, and whether it may take samples. It may not, and passes every call on, if
//
//   - the program calls another malloc than the guest's: one of its own, or one of a library before the guest
//   - the next library is libheaptap.so, which takes samples itself
//
// A block that the guest had made could then reach a free that does not know the block. One line on stderr says so.
//
// Any thread, any time.
#ifndef HEAPTAP_ALLOCATOR_GUEST_START_H_
#define HEAPTAP_ALLOCATOR_GUEST_START_H_

#include <stdint.h>

#include <atomic>

namespace heaptap {

enum class GuestState : uint8_t { kUnknown, kActive, kPassive };
extern constinit std::atomic<GuestState> guest_state;

// Finds the host, decides, and starts the process (process/process.h) if the guest is active. Later calls return at
// once. errno is kept.
void StartGuestSlowly();

inline void StartGuest() {
  // Acquire: the thread sees all that the start has written.
  if (guest_state.load(std::memory_order_acquire) == GuestState::kUnknown) StartGuestSlowly();
}

// Whether the guest takes samples. False before StartGuest.
inline bool IsGuestActive() { return guest_state.load(std::memory_order_acquire) == GuestState::kActive; }

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_START_H_
