// SPDX-License-Identifier: Apache-2.0
//
// ParseMaps and Mappings on hostile text: whatever is accepted is a set of mappings that keeps its invariant, and
// goes through a heap_v2 file and back. An input makes lines of the right form with any numbers and paths, and then any
// text.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/check.h"
#include "userspace/elf/mappings.h"
#include "userspace/formats/heap_v2.h"

namespace {

std::string AnyText(FuzzedDataProvider& data) {
  std::string text;
  while (data.ConsumeBool()) {
    // Few addresses, so that mappings meet; now and then any.
    uint64_t most = data.ConsumeBool() ? 64 : ~uint64_t{0};
    uint64_t start = data.ConsumeIntegralInRange<uint64_t>(0, most);
    uint64_t end = data.ConsumeIntegralInRange<uint64_t>(0, most);
    absl::StrAppendFormat(
        &text, "%08x-%08x %s %08x %02x:%02x %d %s%s\n", start, end, data.ConsumeBool() ? "r-xp" : "rw-p",
        data.ConsumeIntegral<uint64_t>(), data.ConsumeIntegral<uint32_t>(), data.ConsumeIntegral<uint32_t>(),
        data.ConsumeIntegral<uint64_t>(), data.ConsumeRandomLengthString(), data.ConsumeBool() ? " (deleted)" : "");
  }
  return text + data.ConsumeRemainingBytesAsString();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using heaptap::elf::Mapping;

  FuzzedDataProvider provider(data, size);
  auto parsed = heaptap::elf::ParseMaps(AnyText(provider));
  if (!parsed.ok()) return 0;

  heaptap::elf::Mappings mappings;
  for (const Mapping& mapping : *parsed) {
    if (!mappings.Add(mapping)) continue;
    Check(*mappings.Find(mapping.start) == mapping);
    Check(*mappings.Find(mapping.end - 1) == mapping);
  }
  uint64_t last_end = 0;
  heaptap::profile::Profile profile;
  for (const Mapping& mapping : mappings) {
    Check(last_end <= mapping.start && mapping.start < mapping.end);
    last_end = mapping.end;
    profile.mappings.push_back(mapping);
  }

  std::string file = heaptap::formats::HeapV2(profile);
  absl::string_view text = file;
  constexpr absl::string_view kTitle = "\nMAPPED_LIBRARIES:\n";
  text.remove_prefix(text.find(kTitle) + kTitle.size());
  auto again = heaptap::elf::ParseMaps(text);
  Check(again.ok() && again->size() == profile.mappings.size());
  for (size_t i = 0; i < again->size(); ++i) {
    Check((*again)[i].start == profile.mappings[i].start && (*again)[i].end == profile.mappings[i].end);
    Check((*again)[i].inode == profile.mappings[i].inode);
  }
  return 0;
}
