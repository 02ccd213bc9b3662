// SPDX-License-Identifier: Apache-2.0
//
// Finishes stacks that the kernel could not, from a copy of their memory.
#ifndef HEAPTAP_USERSPACE_UNWIND_FINISH_H_
#define HEAPTAP_USERSPACE_UNWIND_FINISH_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/types/span.h"
#include "bpf/books.h"
#include "bpf/unwind.h"

namespace heaptap::unwind {

// The rule that holds at an address of the process; 0 if its code has none, nothing if no code is there.
using RuleFinder = std::function<std::optional<uint32_t>(uint64_t address)>;

// The whole stack: what the kernel found and what lies above it. `memory` is what raw->memory_begin points to; raw is
// the kernel's and sound, the memory is the process's and need not be. Thread-safe if `find_rule` is.
heaptap_stack FinishStack(const heaptap_raw_stack& raw, absl::Span<const uint8_t> memory, const RuleFinder& find_rule);

}  // namespace heaptap::unwind

#endif  // HEAPTAP_USERSPACE_UNWIND_FINISH_H_
