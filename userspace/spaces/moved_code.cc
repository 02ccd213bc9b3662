// SPDX-License-Identifier: Apache-2.0
#include "userspace/spaces/moved_code.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/messages.h"

namespace heaptap::recording {
namespace {

// A program moves its code when it starts. More looks at one process would only take time.
constexpr int kMaxLooks = 16;
// The most processes, and the most files, that are remembered.
constexpr size_t kMaxNotes = 1 << 12;

}  // namespace

std::optional<elf::Mapping> MovedCode::FileBefore(const bpf::MappingEvent& event) const {
  const bool is_anonymous = event.kind == bpf::MappingEvent::kMap && event.mapping.inode == 0;
  if (!is_anonymous || !spaces_.IsHeld(event.pid)) return std::nullopt;
  const elf::Mappings& known = spaces_.Find(event.pid)->mappings;
  const uint64_t start = event.mapping.start;
  const elf::Mapping* const before = known.Find(start);
  if (before != nullptr && before->inode != 0) return *before;
  // It was anonymous already, but did not hold the code yet.
  const auto former =
      std::find_if(known.former().rbegin(), known.former().rend(),
                   [start](const elf::FormerMapping& one) { return one.mapping->inode != 0 && one.Held(start); });
  return former == known.former().rend() ? std::nullopt : std::optional(*former->mapping);
}

bool MovedCode::Apply(const bpf::MappingEvent& event) {
  std::optional<elf::Mapping> file = FileBefore(event);
  const bool is_added = spaces_.Apply(event);
  if (is_added && file.has_value()) LookAt(event.pid, {.start = event.mapping.start, .file = *std::move(file)});
  return is_added;
}

void MovedCode::LookAt(pid_t pid, Place place) {
  const auto [known, is_new] = of_batch_.try_emplace(pid);
  if (!is_new) {
    if (known->second == nullptr) return;
    if (known->second->is_over) return Name(pid, place, known->second->mappings);
    return known->second->places.push_back(std::move(place));
  }
  if (looks_.size() > kMaxNotes) looks_.clear();
  if (++looks_[pid] > kMaxLooks || !orders_.HasRoom(pid)) return;
  const auto look = std::make_shared<Look>(Look{.places = {std::move(place)}});
  known->second = look;
  looking_.insert(pid);
  orders_.Start(
      pid,
      [pid, look](worker::Hands& hands, int) {
        look->mappings = hands.ReadExecutableMappings(pid).value_or(std::vector<elf::Mapping>());
      },
      [this, pid, look] {
        looking_.erase(looking_.find(pid));
        look->is_over = true;
        for (const Place& one : look->places) Name(pid, one, look->mappings);
      });
}

void MovedCode::Name(pid_t pid, const Place& place, const std::vector<elf::Mapping>& mappings) {
  const auto now = std::ranges::find(mappings, place.start, &elf::Mapping::start);
  if (now == mappings.end() || now->inode == 0) return;
  elf::Mapping mapping = *now;
  // /proc/PID/maps does not tell these.
  if (mapping.inode == place.file.inode && mapping.device_major == place.file.device_major &&
      mapping.device_minor == place.file.device_minor) {
    mapping.generation = place.file.generation;
    mapping.build_id = place.file.build_id;
  }
  if (!spaces_.SetFile(pid, std::move(mapping))) return;
  if (reported_.size() > kMaxNotes) reported_.clear();
  if (reported_.insert({pid, now->path}).second) {
    base::Say(absl::StrCat("process ", pid, " has moved code of ", base::AsciiOnly(now->path),
                           " to anonymous memory; stacks through it follow frame pointers"));
  }
}

}  // namespace heaptap::recording
