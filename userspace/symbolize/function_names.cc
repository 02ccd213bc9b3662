// SPDX-License-Identifier: Apache-2.0
#include "userspace/symbolize/function_names.h"

#include <elf.h>
#include <string.h>

#include <algorithm>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/require.h"

namespace heaptap::symbolize {
namespace {

// A symbol that contains at least one of the addresses.
struct Hit {
  uint64_t start;
  uint64_t end;  // beyond the last byte
  uint32_t name;
  uint32_t binding;  // 0 is the best
};

// Whether `a` is a better name than `b` for an address that both contain. Between equals, the earlier one counts.
bool IsBetter(const Hit& a, const Hit& b) {
  if (a.start != b.start) return a.start > b.start;
  return a.binding < b.binding;
}

class Search {
 public:
  Search(const elf::File& file, absl::Span<const uint64_t> addresses) : file_(file), addresses_(addresses) {
    nearest_.resize(addresses.size());
  }

  absl::Status Add(const Elf64_Sym& symbol) {
    const unsigned type = ELF64_ST_TYPE(symbol.st_info);
    if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) return absl::OkStatus();
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= file_.sections().size()) return absl::OkStatus();
    const elf::Section& section = file_.sections()[symbol.st_shndx];
    if ((section.flags & SHF_EXECINSTR) == 0) return absl::OkStatus();
    const uint64_t start = symbol.st_value;
    const size_t index = std::lower_bound(addresses_.begin(), addresses_.end(), start) - addresses_.begin();
    if (index == addresses_.size()) return absl::OkStatus();
    nearest_[index] = std::max(nearest_[index], start);

    // Labels in assembly have no size, and functions written in assembly often have no type.
    const bool sized = type != STT_NOTYPE && symbol.st_size != 0;
    const uint64_t end = sized ? start + symbol.st_size : section.address + section.size;
    if (end <= addresses_[index]) return absl::OkStatus();
    std::vector<Hit>& hits = sized ? sized_ : unsized_;
    if (hits.size() == kMaxHits) return absl::ResourceExhaustedError("too many symbols for the same code");
    hits.push_back({.start = start, .end = end, .name = symbol.st_name, .binding = Binding(symbol)});
    return absl::OkStatus();
  }

  // Calls `found` with the index and the offset of the name for each address that has a name.
  template <typename Found>
  void Finish(Found found) {
    auto by_start = [](const Hit& a, const Hit& b) { return a.start < b.start; };
    std::stable_sort(sized_.begin(), sized_.end(), by_start);
    std::stable_sort(unsized_.begin(), unsized_.end(), by_start);
    // The best on top. Addresses ascend, so a symbol that ends before one address contains none of the later ones.
    // Between equals the order of insertion decides, which a heap alone does not keep.
    auto is_worse = [](const std::pair<Hit, size_t>& a, const std::pair<Hit, size_t>& b) {
      if (IsBetter(a.first, b.first)) return false;
      return IsBetter(b.first, a.first) || a.second > b.second;
    };
    std::priority_queue<std::pair<Hit, size_t>, std::vector<std::pair<Hit, size_t>>, decltype(is_worse)> open(is_worse);
    size_t next = 0;
    uint64_t nearest = 0;
    for (size_t index = 0; index < addresses_.size(); index++) {
      const uint64_t address = addresses_[index];
      nearest = std::max(nearest, nearest_[index]);
      for (; next < sized_.size() && sized_[next].start <= address; next++) open.push({sized_[next], next});
      while (!open.empty() && open.top().first.end <= address) open.pop();
      const Hit* hit = open.empty() ? FindUnsized(nearest, address) : &open.top().first;
      if (hit != nullptr) found(index, hit->name);
    }
  }

 private:
  static uint32_t Binding(const Elf64_Sym& symbol) {
    switch (ELF64_ST_BIND(symbol.st_info)) {
      case STB_GLOBAL:
        return 0;
      case STB_WEAK:
        return 1;
      default:
        return 2;
    }
  }

  // A symbol without a size counts only if no other symbol begins between it and the address.
  const Hit* FindUnsized(uint64_t nearest, uint64_t address) const {
    auto at = std::lower_bound(unsized_.begin(), unsized_.end(), nearest,
                               [](const Hit& hit, uint64_t start) { return hit.start < start; });
    const Hit* best = nullptr;
    for (; at != unsized_.end() && at->start == nearest; ++at) {
      if (at->end > address && (best == nullptr || IsBetter(*at, *best))) best = &*at;
    }
    return best;
  }

  const elf::File& file_;
  absl::Span<const uint64_t> addresses_;
  std::vector<uint64_t> nearest_;  // by index: the highest start of a symbol above the previous address, up to this one
  std::vector<Hit> sized_;
  std::vector<Hit> unsized_;
};

std::string ReadName(const elf::File& file, const elf::Section& names, uint64_t at) {
  // The first piece is longer than most names.
  constexpr uint64_t kFirstPiece = 256;
  std::string name;
  for (uint64_t piece = kFirstPiece; name.size() < kMaxNameBytes && at < names.size; piece = kMaxNameBytes) {
    const uint64_t size = std::min({piece, names.size - at, kMaxNameBytes - name.size()});
    absl::StatusOr<std::string> bytes = file.Read(names.offset + at, size, size, "a name");
    if (!bytes.ok()) break;
    const size_t length = strnlen(bytes->data(), size);
    name.append(*bytes, 0, length);
    if (length < size) break;
    at += size;
  }
  return name;
}

}  // namespace

absl::Status FindFunctionNames(const elf::File& file, SymbolTable table, absl::Span<const uint64_t> addresses,
                               std::vector<std::string>& names) {
  HEAPTAP_REQUIRE(std::ranges::is_sorted(addresses));
  const bool is_static = table == SymbolTable::kStatic;
  const elf::Section* symbols = file.FindSection(is_static ? ".symtab" : ".dynsym");
  const elf::Section* texts = file.FindSection(is_static ? ".strtab" : ".dynstr");
  // In a debug file the sections of the dynamic symbols have no bytes.
  if (symbols == nullptr || texts == nullptr || symbols->type == SHT_NOBITS || texts->type == SHT_NOBITS) {
    return absl::NotFoundError("no such symbol table");
  }
  const uint64_t count = symbols->size / sizeof(Elf64_Sym);
  if (count > kMaxSymbols) return absl::ResourceExhaustedError(absl::StrCat(count, " symbols"));

  constexpr uint64_t kPiece = 1 << 14;
  Search search(file, addresses);
  for (uint64_t done = 0; done < count;) {
    const uint64_t piece = std::min(kPiece, count - done);
    const uint64_t size = piece * sizeof(Elf64_Sym);
    absl::StatusOr<std::string> bytes =
        file.Read(symbols->offset + done * sizeof(Elf64_Sym), size, size, "the symbol table");
    if (!bytes.ok()) return bytes.status();
    for (uint64_t at = 0; at < size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      memcpy(&symbol, bytes->data() + at, sizeof(symbol));
      if (absl::Status status = search.Add(symbol); !status.ok()) return status;
    }
    done += piece;
  }
  // Neighbouring addresses are often in the same function.
  uint64_t last_place = 0;
  std::string last;
  search.Finish([&](size_t index, uint64_t place) {
    if (!names[index].empty() || place == 0) return;
    if (place != last_place) {
      last_place = place;
      last = ReadName(file, *texts, place);
    }
    names[index] = last;
  });
  return absl::OkStatus();
}

}  // namespace heaptap::symbolize
