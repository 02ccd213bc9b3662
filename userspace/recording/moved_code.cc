// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/moved_code.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/messages.h"

namespace heaptap::recording {
namespace {

// A program moves its code when it starts. More looks at one process would only take time.
constexpr int kMaxLooks = 16;
// Processes and files of which this is known.
constexpr size_t kMaxNotes = 1 << 12;

}  // namespace

bool MovedCode::HadFile(const bpf::MappingEvent& event) const {
  const elf::Mappings& known = spaces_.Find(event.pid)->mappings;
  const uint64_t start = event.mapping.start;
  const elf::Mapping* const before = known.Find(start);
  if (before != nullptr && before->inode != 0) return true;
  // It was anonymous already, but did not hold the code yet.
  return std::ranges::any_of(
      known.former(), [start](const elf::FormerMapping& one) { return one.mapping->inode != 0 && one.Held(start); });
}

const std::vector<elf::Mapping>& MovedCode::MappingsOf(pid_t pid) {
  const auto [known, is_new] = now_.try_emplace(pid);
  if (looks_.size() > kMaxNotes) looks_.clear();
  if (!is_new || ++looks_[pid] > kMaxLooks) return known->second;
  known->second = hands_.ReadExecutableMappings(pid).value_or(std::vector<elf::Mapping>());
  return known->second;
}

bool MovedCode::Name(bpf::MappingEvent& event) {
  const bool is_anonymous = event.kind == bpf::MappingEvent::kMap && event.mapping.inode == 0;
  if (!is_anonymous || !spaces_.IsHeld(event.pid) || !HadFile(event)) return false;
  const std::vector<elf::Mapping>& mappings = MappingsOf(event.pid);
  const auto now = std::ranges::find(mappings, event.mapping.start, &elf::Mapping::start);
  if (now == mappings.end() || now->inode == 0) return false;
  event.mapping = *now;
  if (reported_.size() > kMaxNotes) reported_.clear();
  if (reported_.insert({event.pid, now->path}).second) {
    base::Say(absl::StrCat("process ", event.pid, " has moved code of ", base::AsciiOnly(now->path),
                           " to anonymous memory; stacks through it follow frame pointers"));
  }
  return true;
}

}  // namespace heaptap::recording
