// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/jeprof_symbolized.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/base/printable_text.h"
#include "userspace/formats/heap_v2.h"
#include "userspace/formats/text_profile.h"
#include "userspace/profile/frame_names.h"

namespace heaptap::formats {
namespace {

// The heading of the last section of a heap profile.
constexpr char kLastHeading[] = "\nMAPPED_LIBRARIES:\n";

// The addresses that jeprof looks up: those of HeapV2, minus one for callers, so that all lie inside calls.
std::vector<uint64_t> CallAddresses(const std::vector<Row>& rows) {
  std::vector<uint64_t> addresses;
  for (const Row& row : rows) {
    for (uint64_t frame : row.context->frames) addresses.push_back(profile::CallAddress(frame));
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

// Appends a name without "--", which jeprof takes for the end of a name.
void AppendName(absl::string_view name, std::string& out) {
  char last = '\0';
  for (char c : name) {
    if (c == '-' && last == '-') out.push_back(' ');
    out.push_back(c);
    last = c;
  }
  if (last == '-') out.push_back(' ');
}

void AppendSymbol(uint64_t address, const std::vector<std::string>& names, std::string& out) {
  absl::StrAppend(&out, "0x", absl::Hex(address));
  absl::string_view separator = " ";
  for (size_t name = names.size(); name-- > 0;) {
    out.append(separator.data(), separator.size());
    AppendName(names[name], out);
    separator = "--";
  }
  out.push_back('\n');
}

}  // namespace

std::string JeprofSymbolized(const profile::Profile& profile, absl::string_view program,
                             const profile::FindSourceFrames& find) {
  profile::FrameNames names(profile, find);
  std::string out = "--- symbol\nbinary=";
  base::AppendPrintable(profile::FileName(program), out);
  out.push_back('\n');
  for (uint64_t address : CallAddresses(Rows(profile))) AppendSymbol(address, names.At(address), out);
  AppendSymbol(kUnknownFrame, {profile::kUnknownCallPath}, out);
  out.append("---\n--- heap\n");
  out.append(HeapV2(profile));
  // The mapped libraries are left out: all names are known, and jeprof would run objdump on each file, or on another
  // file in its place.
  out.resize(out.rfind(kLastHeading) + sizeof(kLastHeading) - 1);
  return out;
}

}  // namespace heaptap::formats
