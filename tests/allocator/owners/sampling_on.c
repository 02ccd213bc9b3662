/* SPDX-License-Identifier: Apache-2.0 */
/* For programs in which allocations are samples from the beginning. */
#include "guest/sampling.h"

__attribute__((constructor)) static void SwitchOn(void) { SwitchSamplingOn(); }
