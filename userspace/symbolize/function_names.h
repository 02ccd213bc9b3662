// SPDX-License-Identifier: Apache-2.0
//
// Names of functions from the symbol tables of a hostile ELF file.
//
// A table is read once from end to end in pieces and not kept, so that memory is for the addresses asked for and for
// the symbols that hold them, however large the table is.
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_FUNCTION_NAMES_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_FUNCTION_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "userspace/elf/file.h"

namespace heaptap::symbolize {

// Longer names are cut here. Only programs that compute with templates make them, and no reader wants them.
inline constexpr uint64_t kMaxNameBytes = 16 << 10;
// Symbols in one table, 384 MiB of them: more than the largest browsers have.
inline constexpr uint64_t kMaxSymbols = 16 << 20;
// Symbols of one table that hold some of the addresses: at least a dozen names for each address of a large batch.
inline constexpr size_t kMaxHits = 1 << 18;

enum class SymbolTable { kStatic, kDynamic };  // .symtab, .dynsym

// Fills in those of `names` that are empty: the mangled name of the function that holds the link-time address of the
// same index. `addresses` ascend. Of functions within each other the innermost counts; of several names for one
// function, a global one rather than a weak or local one, then the first. A symbol without a size reaches to the next
// one. An address that nothing holds stays without a name.
// NotFound: no such table. InvalidArgument: it is broken. ResourceExhausted: a bound above. Other codes: reading
// failed. Thread-safe.
absl::Status FindFunctionNames(const elf::File& file, SymbolTable table, absl::Span<const uint64_t> addresses,
                               std::vector<std::string>& names);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_FUNCTION_NAMES_H_
