// SPDX-License-Identifier: Apache-2.0
#include "userspace/daemon/unserved.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/base/messages.h"
#include "userspace/crews/hands.h"
#include "userspace/process/facts.h"
#include "userspace/process/preload.h"

namespace heaptap::daemon {
namespace {

// The names of both libraries, and of links to them, begin with this.
constexpr absl::string_view kLibrary = "libheaptap";

bool IsOurs(absl::string_view path) { return absl::StartsWith(path.substr(path.rfind('/') + 1), kLibrary); }

}  // namespace

std::string WhyUnserved(const process::StartFacts& start, const std::vector<elf::Mapping>& executable_mappings) {
  if (!std::ranges::any_of(process::SplitPreload(start.preload), IsOurs)) return "";
  std::set<uint64_t> files;
  uint64_t end = 0;
  for (const elf::Mapping& mapping : executable_mappings) {
    if (mapping.inode == 0) continue;
    if (IsOurs(mapping.path)) return "";
    files.insert(mapping.inode);
    end = std::max(end, mapping.end);
  }
  if (files.empty()) return "";  // it has ended
  if (start.is_secure) return "it is set-user-ID or has capabilities of its own";
  constexpr uint64_t kEndOf32Bits = uint64_t{1} << 32;
  if (files.size() == 1) return "it is statically linked";
  if (end <= kEndOf32Bits) return "it is a 32-bit program";
  return "its dynamic linker did not load the library";
}

std::vector<UnservedProcess> FindUnserved() {
  // A process can make readers of its memory wait, so hands read the memory.
  worker::Hands hands;
  std::vector<UnservedProcess> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const absl::StatusOr<process::StartFacts> start = hands.StartFacts(pid);
    if (!start.ok() || !absl::StrContains(start->preload, kLibrary)) continue;
    const absl::StatusOr<std::vector<elf::Mapping>> mappings = hands.ReadExecutableMappings(pid);
    if (!mappings.ok()) continue;
    std::string why = WhyUnserved(*start, *mappings);
    if (why.empty()) continue;
    const absl::StatusOr<process::Facts> facts = hands.Facts(pid);
    found.push_back({pid, facts.ok() ? base::AsciiOnly(facts->command) : "?", std::move(why)});
  }
  std::ranges::sort(found, {}, &UnservedProcess::pid);
  return found;
}

}  // namespace heaptap::daemon
