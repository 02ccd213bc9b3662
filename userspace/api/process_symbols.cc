// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/process_symbols.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/base/printable_text.h"
#include "userspace/base/user_ids.h"
#include "userspace/elf/mappings.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/frame_names.h"
#include "userspace/profile/snapshot.h"

namespace heaptap::api {
namespace {

constexpr worker::Limits kCommandLine = {.time = absl::Seconds(2), .answer_bytes = 64 << 10};

std::vector<profile::SourceFrame> ToSourceFrames(const symbolize::Frames& frames) {
  std::vector<profile::SourceFrame> result;
  result.reserve(frames.size());
  for (const symbolize::Frame& frame : frames) {
    result.push_back(
        {.function = std::string(frame.function.view()), .file = std::string(frame.file.view()), .line = frame.line});
  }
  return result;
}

profile::FindSourceFrames FindIn(absl::flat_hash_map<uint64_t, symbolize::Frames> frames) {
  auto known = std::make_shared<const absl::flat_hash_map<uint64_t, symbolize::Frames>>(std::move(frames));
  return [known](uint64_t address) {
    auto found = known->find(address);
    return found == known->end() ? std::vector<profile::SourceFrame>() : ToSourceFrames(found->second);
  };
}

uint64_t BytesOf(const symbolize::Frames& frames) {
  uint64_t bytes = 0;
  for (const symbolize::Frame& frame : frames) bytes += frame.function.view().size() + frame.file.view().size();
  return bytes;
}

// Groups addresses by the index of their mapping; drops those without one.
std::map<size_t, std::vector<uint64_t>> ByMapping(const std::vector<elf::Mapping>& mappings,
                                                  absl::Span<const uint64_t> addresses) {
  std::map<size_t, std::vector<uint64_t>> result;
  for (uint64_t address : addresses) {
    const elf::Mapping* mapping = profile::FindMapping(mappings, address);
    if (mapping != nullptr && mapping->inode != 0) result[mapping - mappings.data()].push_back(address);
  }
  return result;
}

std::vector<uint64_t> CallAddresses(const profile::Profile& profile) {
  std::vector<uint64_t> addresses;
  for (const profile::Context& context : profile.contexts) {
    for (uint64_t frame : context.frames) addresses.push_back(profile::CallAddress(frame));
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

}  // namespace

ProcessSymbols::ProcessSymbols(Collector& collector, worker::Crews& crews, Options options)
    : collector_(collector), crews_(crews), options_(std::move(options)) {}

ProcessSymbols::Owner ProcessSymbols::FindOwner(pid_t pid, uint64_t process_id) {
  const absl::StatusOr<std::optional<uid_t>> owner = collector_.Owner({.pid = pid, .process_id = process_id});
  if (!owner.ok()) return {};
  return {.pid = pid, .user = owner->value_or(base::kUnknownUser)};
}

profile::FindSourceFrames ProcessSymbols::Find(const profile::Snapshot& snapshot,
                                               absl::Span<const uint64_t> addresses) {
  return FindIn(FindNow(snapshot, addresses).frames);
}

ProcessSymbols::Found ProcessSymbols::FindNow(const profile::Snapshot& snapshot, absl::Span<const uint64_t> addresses) {
  const Owner owner = FindOwner(snapshot.profile.pid, snapshot.process_id);
  Found found = FindBy(owner, snapshot, addresses);
  const bool is_same = owner.pid == 0 || FindOwner(owner.pid, snapshot.process_id).pid != 0;
  if (!is_same) found = FindBy({}, snapshot, addresses);
  return found;
}

ProcessSymbols::Found ProcessSymbols::FindBy(const Owner& owner, const profile::Snapshot& snapshot,
                                             absl::Span<const uint64_t> addresses) {
  const base::Instant deadline = base::Now() + options_.patience;
  Found known;
  uint64_t bytes = 0;
  for (const auto& [index, in_mapping] : ByMapping(snapshot.profile.mappings, addresses)) {
    const elf::Mapping& mapping = snapshot.profile.mappings[index];
    for (size_t begin = 0; begin < in_mapping.size(); begin += worker::kMaxBatch) {
      const auto batch = absl::MakeConstSpan(in_mapping).subspan(begin, worker::kMaxBatch);
      std::vector<uint64_t> offsets;
      offsets.reserve(batch.size());
      for (uint64_t address : batch) offsets.push_back(worker::FileOffset(mapping, address));
      worker::Symbolizer* const symbolizer = Begin(owner.user, deadline);
      if (symbolizer == nullptr) {
        known.late.insert(mapping.path);
        break;
      }
      // In a cleanup, because Symbolize can throw std::bad_alloc.
      const absl::Cleanup end = [&] { End(owner.user); };
      std::vector<symbolize::Frames> frames =
          symbolizer->Symbolize(owner.user, {.pid = owner.pid, .mapping = mapping}, offsets);
      for (size_t i = 0; i < frames.size(); ++i) {
        bytes += BytesOf(frames[i]);
        if (bytes > options_.name_bytes) {
          known.too_long.insert(mapping.path);
          return known;
        }
        known.frames.insert_or_assign(batch[i], std::move(frames[i]));
      }
      if (const symbolize::Gap gap = symbolizer->gap(); gap != symbolize::Gap::kNone) {
        known.unread[gap].insert(mapping.path);
      }
    }
  }
  return known;
}

profile::FindSourceFrames ProcessSymbols::FindAll(profile::Snapshot& snapshot) {
  const std::vector<uint64_t> addresses = CallAddresses(snapshot.profile);
  Owner owner = FindOwner(snapshot.profile.pid, snapshot.process_id);
  std::vector<elf::Mapping>& mappings = snapshot.profile.mappings;
  const std::map<size_t, std::vector<uint64_t>> by_mapping = ByMapping(mappings, addresses);
  // Whether the books know the file as it was when the process mapped it.
  std::vector<char> is_known;
  is_known.reserve(mappings.size());
  for (const elf::Mapping& mapping : mappings) is_known.push_back(mapping.build_id.empty() ? 0 : 1);
  const auto find_build_ids = [&] {
    for (size_t index = 0; index < mappings.size(); ++index) {
      elf::Mapping& mapping = mappings[index];
      if (!by_mapping.contains(index) && mapping.path != snapshot.executable) continue;
      if (is_known[index] == 0) mapping.build_id = BuildId(owner, mapping);
    }
  };
  find_build_ids();
  if (owner.pid != 0 && FindOwner(owner.pid, snapshot.process_id).pid == 0) {
    owner = {};
    find_build_ids();
  }
  Found found = FindNow(snapshot, addresses);
  for (const auto& [gap, paths] : found.unread) {
    snapshot.profile.warnings.push_back(absl::StrCat("heaptap: ", symbolize::GapText(gap), base::SomeOf(paths)));
  }
  if (!found.late.empty()) {
    snapshot.profile.warnings.push_back(
        absl::StrCat("heaptap: there was no time for the names of some functions; ask again for those in ",
                     base::SomeOf(found.late)));
  }
  if (!found.too_long.empty()) {
    snapshot.profile.warnings.push_back(
        absl::StrCat("heaptap: some functions have no names, because the names in one profile may take ",
                     options_.name_bytes >> 20, " MiB: those in ", base::SomeOf(found.too_long), " take more"));
  }
  return FindIn(std::move(found.frames));
}

worker::Symbolizer* ProcessSymbols::Begin(uid_t user, base::Instant deadline) {
  base::MutexLock lock(&mutex_);
  const auto is_idle = [](const auto& one) { return !one.second.is_busy; };
  const auto is_free = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto own = users_.find(user);
    if (own != users_.end()) return is_idle(*own);
    return users_.size() < options_.users || std::ranges::any_of(users_, is_idle);
  };
  if (!base::AwaitUntil(mutex_, absl::Condition(&is_free), deadline) || base::Now() > deadline) return nullptr;
  if (users_.size() >= options_.users && !users_.contains(user)) {
    const auto last_use = [&](const auto& one) { return is_idle(one) ? one.second.used : UINT64_MAX; };
    users_.erase(std::ranges::min_element(users_, {}, last_use));
  }
  OfUser& own = users_[user];
  if (own.symbolizer == nullptr) {
    worker::Symbolizer::Options options = options_.symbolizer;
    options.cache_bytes /= options_.users;
    own.symbolizer = std::make_unique<worker::Symbolizer>(crews_, std::move(options));
  }
  own.is_busy = true;
  own.used = ++uses_;
  return own.symbolizer.get();
}

void ProcessSymbols::End(uid_t user) {
  base::MutexLock lock(&mutex_);
  users_.at(user).is_busy = false;
}

std::string ProcessSymbols::BuildId(const Owner& owner, const elf::Mapping& mapping) {
  if (mapping.inode == 0) return "";
  const worker::Answer answer =
      crews_.Do(owner.user, {.job = worker::Job::kDebugLinks, .file = {.pid = owner.pid, .mapping = mapping}},
                options_.symbolizer.limits);
  const absl::StatusOr<worker::FileFacts> facts = worker::DecodeFacts(answer.bytes);
  return answer.status.ok() && facts.ok() ? facts->links.build_id : "";
}

std::vector<std::string> ProcessSymbols::CommandLine(const profile::NamedProcess& process) {
  const worker::Answer answer =
      crews_.Do(process.owner.value_or(base::kUnknownUser),
                {.job = worker::Job::kCommandLine, .file = {.pid = process.pid}}, kCommandLine);
  if (answer.bytes.empty() || FindOwner(process.pid, process.process_id).pid == 0) return {};
  return absl::StrSplit(absl::StripSuffix(answer.bytes, absl::string_view("\0", 1)), '\0');
}

}  // namespace heaptap::api
