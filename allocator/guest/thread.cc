// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/thread.h"

namespace heaptap {

constinit thread_local GuestThread guest_thread{};

}  // namespace heaptap
