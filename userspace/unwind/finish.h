// SPDX-License-Identifier: Apache-2.0
//
// Finishes stacks whose walk ended in the kernel for lack of a table, from a copy of their memory.
#ifndef HEAPTAP_USERSPACE_UNWIND_FINISH_H_
#define HEAPTAP_USERSPACE_UNWIND_FINISH_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "bpf/books.h"
#include "bpf/unwind.h"
#include "userspace/unwind/stack_copy.h"

namespace heaptap::unwind {

// The rule for an address of the process; 0: code without a rule; nothing: not code.
using RuleFinder = std::function<std::optional<uint32_t>(uint64_t address)>;

// The whole stack: the frames that the kernel found, and those above. `memory` begins at the address raw.memory_begin.
// `raw` comes from the kernel and is sound; the memory comes from the process and may be hostile. Thread-safe if
// `find_rule` is.
heaptap_stack FinishStack(const heaptap_raw_stack& raw, const StackCopy& memory, const RuleFinder& find_rule);

}  // namespace heaptap::unwind

#endif  // HEAPTAP_USERSPACE_UNWIND_FINISH_H_
