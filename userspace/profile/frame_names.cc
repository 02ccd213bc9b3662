// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/frame_names.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/base/printable_text.h"
#include "userspace/base/require.h"

namespace heaptap::profile {

const elf::Mapping* FindMapping(absl::Span<const elf::Mapping> mappings, uint64_t address) {
  HEAPTAP_REQUIRE(std::ranges::is_sorted(mappings, {}, &elf::Mapping::start));
  auto after = std::upper_bound(mappings.begin(), mappings.end(), address,
                                [](uint64_t value, const elf::Mapping& mapping) { return value < mapping.start; });
  if (after == mappings.begin()) return nullptr;
  const elf::Mapping& mapping = *(after - 1);
  return address < mapping.end ? &mapping : nullptr;
}

absl::string_view FileName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash != absl::string_view::npos && slash + 1 < path.size()) path.remove_prefix(slash + 1);
  return path;
}

std::string PlaceText(absl::string_view library, uint64_t offset) {
  if (library.empty() && offset == CallAddress(HEAPTAP_FRAMES_LEFT_OUT)) return kFramesLeftOut;
  const absl::string_view file = FileName(library);
  return absl::StrCat(file, file.empty() ? "" : "+", "0x", absl::Hex(offset));
}

std::string NameWithoutSymbol(const elf::Mapping* mapping, uint64_t address) {
  if (mapping == nullptr || mapping->path.empty()) return absl::StrCat("0x", absl::Hex(address));
  return absl::StrCat(base::Printable(FileName(mapping->path)), "+0x",
                      absl::Hex(address - mapping->start + mapping->file_offset));
}

const std::vector<std::string>& FrameNames::At(uint64_t address) {
  auto [entry, is_new] = by_address_.try_emplace(address);
  std::vector<std::string>& names = entry->second;
  if (!is_new) return names;
  for (const SourceFrame& frame : FramesAt(find_, address)) {
    const std::string& name = frame.function.empty() ? frame.linkage_name : frame.function;
    if (!name.empty()) names.push_back(base::Printable(name));
  }
  if (names.empty()) names.push_back(NameWithoutSymbol(FindMapping(profile_.mappings, address), address));
  return names;
}

}  // namespace heaptap::profile
