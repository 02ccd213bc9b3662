// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/each_symbol.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/base/require.h"

namespace heaptap::elf {
namespace {

// The piece of a symbol table that is in memory at a time.
constexpr uint64_t kSymbolsAtOnce = 16384;

}  // namespace

absl::Status ForEachSymbol(const File& file, const Section& section, absl::string_view name,
                           absl::FunctionRef<bool(const Elf64_Sym&)> visit) {
  HEAPTAP_REQUIRE(section.type != SHT_NOBITS);
  for (uint64_t done = 0; section.size - done >= sizeof(Elf64_Sym);) {
    const uint64_t count = std::min((section.size - done) / sizeof(Elf64_Sym), kSymbolsAtOnce);
    const uint64_t bytes = count * sizeof(Elf64_Sym);
    const absl::StatusOr<std::string> piece = file.Read(section.offset + done, bytes, bytes, name);
    if (!piece.ok()) return piece.status();
    done += bytes;
    for (uint64_t i = 0; i < count; i++) {
      Elf64_Sym symbol;
      memcpy(&symbol, piece->data() + i * sizeof(symbol), sizeof(symbol));
      if (!visit(symbol)) return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

}  // namespace heaptap::elf
