// SPDX-License-Identifier: Apache-2.0
#include "userspace/profiles/profile_builder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/profile/contexts.h"

namespace heaptap::recording {
namespace {

// The time to read a tally.
constexpr absl::Duration kTallyTime = absl::Microseconds(1);

// Where every allocation is a sample, its weight is its size.
void AddEstimateWarning(uint64_t period, absl::Span<const bpf::TallyEntry> tallies,
                        std::vector<std::string>& warnings) {
  if (period > 1) return;
  uint64_t sizes = 0;
  uint64_t weights = 0;
  for (const bpf::TallyEntry& entry : tallies) {
    sizes += entry.tally.allocated.bytes;
    weights += entry.tally.allocated.weight;
  }
  if (weights <= sizes) return;
  warnings.push_back(absl::StrCat("heaptap: ", weights - sizes,
                                  " of the allocated bytes are estimated: not every allocation was a sample at first"));
}

void AddLossWarnings(const bpf::Losses& losses, absl::string_view whose, std::vector<std::string>& warnings) {
  for (uint32_t reason = 0; reason < losses.size(); reason++) {
    if (losses[reason].events == 0) continue;
    std::string warning = absl::StrCat("heaptap: ", losses[reason].events, " ", bpf::LossDescription(reason), whose);
    if (losses[reason].weight != 0) absl::StrAppend(&warning, " (estimated ", losses[reason].weight, " bytes)");
    warnings.push_back(std::move(warning));
  }
}

// A program chooses the weights of its own heaps itself.
bool HasOtherPeriods(const bpf::TallyEntry& entry, uint64_t period) {
  if (profile::IsHeap(entry.tid)) return false;
  const profile::Estimate allocated = profile::ToEstimate(entry.tally.allocated);
  return profile::HasFinerSamples(allocated, period) || profile::HasCoarserSamples(allocated, period);
}

// The allocator's code: the range in its control block, or else the whole mapping of the probe. A mapping of the
// program itself does not count: it holds the program's functions too.
std::vector<profile::AddressRange> AllocatorRanges(const ProfileSubject& subject, uint64_t probe_address) {
  if (subject.allocator.begin < subject.allocator.end) return {subject.allocator};
  if (subject.space == nullptr) return {};
  const elf::Mapping* mapping = subject.space->mappings.Find(probe_address);
  if (mapping == nullptr || mapping->path == subject.space->executable) return {};
  return {{mapping->start, mapping->end}};
}

// Moves frames in code that is no longer mapped there to the addresses of the former mapping. Deep stacks with equal
// addresses in different files may have the same id, so the time of a deep stack is not certain.
void PlaceFrames(const heaptap_stack& stack, const elf::Mappings& mappings, std::vector<uint64_t>& frames) {
  const bool is_deep =
      stack.count == HEAPTAP_MAX_FRAMES && stack.frames[HEAPTAP_INNER_FRAMES] == HEAPTAP_FRAMES_LEFT_OUT;
  const std::optional<uint64_t> time = is_deep || stack.time == 0 ? std::nullopt : std::optional(uint64_t{stack.time});
  for (uint64_t& frame : frames) {
    if (frame != HEAPTAP_FRAMES_LEFT_OUT) frame = mappings.Place(frame, time);
  }
}

void AddBlocks(const bpf::Entries& entries, const ProfileSubject& subject, const LiveBlocks& blocks,
               profile::ContextBuilder& contexts) {
  absl::flat_hash_map<uint64_t, StackFrames> stacks;
  for (const LiveBlocks::Group& group : blocks.groups) {
    const auto [entry, is_new] = stacks.try_emplace(group.stack_id);
    if (is_new) entry->second = ProgramFrames(entries, subject, group.stack_id);
    contexts.Add(entry->second.frames, entry->second.end != HEAPTAP_STACK_WHOLE, group.share);
  }
}

}  // namespace

std::map<uint32_t, std::string> ThreadNames(const bpf::Entries& entries, uint64_t process_id,
                                            const std::set<uint32_t>& tids, const NameLiving& name_living) {
  std::map<uint32_t, std::string> names;
  std::vector<uint32_t> unnamed;
  for (const uint32_t tid : tids) {
    absl::StatusOr<bpf::ThreadName> kept = entries.ReadThreadName(process_id, tid);
    names[tid] = kept.ok() ? std::move(kept->name) : "";
    if (profile::IsHeap(tid)) {
      names[tid] = absl::StrCat("heap:\"", kept.ok() ? names[tid] : "?", "\"");
      continue;
    }
    if (!kept.ok() || !kept->given) unnamed.push_back(tid);
  }
  if (unnamed.empty() || name_living == nullptr) return names;
  for (auto& [tid, name] : name_living(unnamed)) {
    if (const auto known = names.find(tid); known != names.end()) known->second = std::move(name);
  }
  return names;
}

absl::StatusOr<OwnTallies> ReadOwnTallies(const bpf::Entries& entries, uint64_t process_id) {
  const base::Instant begin = base::Now();
  absl::StatusOr<std::vector<bpf::TallyEntry>> tallies = entries.ReadTallies(process_id);
  if (!tallies.ok()) return tallies.status();
  OwnTallies own = {.tallies = *std::move(tallies)};
  const absl::Duration all = base::Now() - begin;
  own.cost = std::min(all, kTallyTime * own.tallies.size());
  return own;
}

StackFrames ProgramFrames(const bpf::Entries& entries, const ProfileSubject& subject, uint64_t stack_id) {
  const absl::StatusOr<heaptap_stack> stack = entries.ReadStack(stack_id);
  if (!stack.ok() || stack->count == 0) return {};
  const absl::Span<const uint64_t> recorded =
      absl::MakeConstSpan(reinterpret_cast<const uint64_t*>(stack->frames), stack->count);
  StackFrames result = {.frames = profile::CutAllocatorFrames(recorded, AllocatorRanges(subject, recorded[0])),
                        .end = std::min<uint32_t>(stack->end, HEAPTAP_STACK_UNFINISHED)};
  if (result.frames.size() > subject.max_frames) result.frames.resize(subject.max_frames);
  if (subject.space != nullptr) PlaceFrames(*stack, subject.space->mappings, result.frames);
  return result;
}

profile::Profile BuildProfile(const bpf::Entries& entries, const ProfileSubject& subject,
                              std::vector<bpf::TallyEntry> tallies, uint64_t mappings_lost, const LiveBlocks* blocks) {
  profile::Profile result;
  result.pid = subject.pid;
  result.period = uint64_t{1} << subject.lg_sample;
  result.time = base::WallNow();
  result.raw = subject.raw;
  if (subject.space != nullptr) result.mappings = subject.space->mappings.All();

  std::sort(tallies.begin(), tallies.end(), [](const bpf::TallyEntry& a, const bpf::TallyEntry& b) {
    return a.stack_id != b.stack_id ? a.stack_id < b.stack_id : a.tid < b.tid;
  });
  profile::ContextBuilder contexts(tallies.size());
  uint64_t last_id = HEAPTAP_NO_STACK;
  StackFrames stack;
  for (const bpf::TallyEntry& entry : tallies) {
    if (entry.stack_id != last_id) {
      last_id = entry.stack_id;
      stack = ProgramFrames(entries, subject, entry.stack_id);
    }
    uint64_t& samples = entry.stack_id == HEAPTAP_NO_STACK
                            ? result.stack_ends.without_stack  // the losses give the reason
                            : result.stack_ends.samples[stack.end];
    samples += entry.tally.allocated.objects;
    result.several_periods |= HasOtherPeriods(entry, result.period);
    contexts.Add(stack.frames, stack.end != HEAPTAP_STACK_WHOLE, entry.tid, entry.tally);
  }
  if (blocks != nullptr) AddBlocks(entries, subject, *blocks, contexts);
  result.contexts = contexts.Build();
  std::set<uint32_t> tids;
  for (const bpf::TallyEntry& entry : tallies) tids.insert(entry.tid);
  result.thread_names = ThreadNames(entries, subject.process_id, tids, nullptr);

  AddEstimateWarning(result.period, tallies, result.warnings);
  AddLossWarnings(entries.ReadLosses(subject.process_id), "", result.warnings);
  bpf::Losses unowned = entries.ReadLosses(0);
  // These losses are beginnings of other processes, because this one is known.
  unowned[HEAPTAP_LOSS_EVENTS_FULL] = {};
  AddLossWarnings(unowned, ", in this or another process", result.warnings);
  if (subject.user != 0) {
    AddLossWarnings(entries.ReadLosses(HEAPTAP_LOSSES_OF_USER | subject.user), ", of the same user", result.warnings);
  }
  for (uint32_t reason = HEAPTAP_STACK_WHOLE + 1; reason < HEAPTAP_STACK_ENDS; reason++) {
    const uint64_t samples = result.stack_ends.samples[reason];
    if (samples == 0) continue;
    const char* const what = samples == 1 ? " sample whose outer frames are missing: its stack ends at "
                                          : " samples whose outer frames are missing: their stacks end at ";
    result.warnings.push_back(absl::StrCat("heaptap: ", samples, what, bpf::StackEndDescription(reason)));
  }
  if (subject.space != nullptr && subject.space->mappings.refused() != 0) {
    result.warnings.push_back(
        absl::StrCat("heaptap: ", subject.space->mappings.refused(), " mappings too many: code there has no names"));
  }
  if (mappings_lost != 0) {
    result.warnings.push_back(
        absl::StrCat("heaptap: ", mappings_lost, " mapping events lost: some addresses may have no library"));
  }
  return result;
}

profile::Profile BuildOtherProfile(const bpf::OtherBooks& books, const ProfileSubject& subject) {
  profile::Profile result;
  result.pid = subject.pid;
  result.period = uint64_t{1} << subject.lg_sample;
  result.time = base::WallNow();
  if (subject.space != nullptr) result.mappings = subject.space->mappings.All();
  const auto tallies = books.tallies.find(subject.process_id);
  if (tallies == books.tallies.end()) return result;
  profile::ContextBuilder contexts;
  for (const bpf::TallyEntry& entry : tallies->second) {
    std::vector<uint64_t> frames;
    uint32_t end = HEAPTAP_STACK_UNFINISHED;
    if (const auto stack = books.stacks.find(entry.stack_id);
        stack != books.stacks.end() && !stack->second.frames.empty()) {
      const std::vector<uint64_t>& recorded = stack->second.frames;
      frames = profile::CutAllocatorFrames(recorded, AllocatorRanges(subject, recorded[0]));
      if (frames.size() > subject.max_frames) frames.resize(subject.max_frames);
      end = std::min<uint32_t>(stack->second.end, HEAPTAP_STACK_UNFINISHED);
    }
    result.stack_ends.samples[end] += entry.tally.allocated.objects;
    contexts.Add(frames, end != HEAPTAP_STACK_WHOLE, entry.tid, entry.tally);
    result.thread_names.try_emplace(entry.tid);
  }
  result.contexts = contexts.Build();
  AddEstimateWarning(result.period, tallies->second, result.warnings);
  if (const auto losses = books.losses.find(subject.process_id); losses != books.losses.end()) {
    AddLossWarnings(losses->second, "", result.warnings);
  }
  return result;
}

}  // namespace heaptap::recording
