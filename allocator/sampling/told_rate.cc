// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/told_rate.h"

#include <stdint.h>

#include <atomic>

#include "allocator/core/control.h"
#include "allocator/sampling/probes.h"
#include "heaptap/contract.h"

namespace heaptap {
namespace {

static_assert(HEAPTAP_RATE_SITES == 48, "probes.S has another number of sites");

// The told interval that the process follows. HEAPTAP_NO_RATE: none.
constinit std::atomic<uint32_t> followed{HEAPTAP_NO_RATE};

uint32_t ToldLgInterval() {
  for (uint32_t lg = 0; lg <= HEAPTAP_MAX_LG_SAMPLE; lg++) {
    if (HasListener(heaptap_semaphore_rate[HEAPTAP_RATE_SITE(lg)])) return lg;
  }
  return HEAPTAP_NO_RATE;
}

}  // namespace

uint32_t FollowToldRate() {
  const uint32_t told = ToldLgInterval();
  followed.store(told, std::memory_order_relaxed);
  return told;
}

void DropUnconfirmedRate() {
  const uint32_t told = followed.exchange(HEAPTAP_NO_RATE, std::memory_order_relaxed);
  // Something that is not a collector, such as `heaptap rate`, may have set another interval meanwhile.
  if (told == HEAPTAP_NO_RATE || control::CollectorPid() != 0 || control::ChosenLgInterval() != told) return;
  control::ForgetCollector();
}

}  // namespace heaptap
