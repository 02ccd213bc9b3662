// SPDX-License-Identifier: Apache-2.0
//
// Names of functions from the symbol tables of a hostile ELF file.
//
// A table is read once, in pieces, and not kept. So memory depends on the number of addresses and of symbols that
// contain them, not on the size of the table.
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_FUNCTION_NAMES_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_FUNCTION_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "userspace/elf/file.h"

namespace heaptap::symbolize {

// Longer names are cut. Only programs that compute with templates have them.
inline constexpr uint64_t kMaxNameBytes = 16 << 10;
// Symbols in one table, 384 MiB: more than the largest browsers have.
inline constexpr uint64_t kMaxSymbols = 16 << 20;
// Symbols of one table that contain some of the addresses: at least a dozen for each address of a large batch.
inline constexpr size_t kMaxHits = 1 << 18;

enum class SymbolTable { kStatic, kDynamic };  // .symtab, .dynsym

// Fills in each empty entry of `names` with the mangled name of the function that contains the link-time address of the
// same index, if there is one. If functions lie within each other, the innermost counts. If one function has several
// names, a global name counts before a weak or local one, then the first. A symbol without a size extends to the next
// one. NotFound: no such table. InvalidArgument: it is broken. ResourceExhausted: a bound above is exceeded. Other
// codes: reading failed. REQUIRES: addresses ascend. Thread-safe.
absl::Status FindFunctionNames(const elf::File& file, SymbolTable table, absl::Span<const uint64_t> addresses,
                               std::vector<std::string>& names);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_FUNCTION_NAMES_H_
