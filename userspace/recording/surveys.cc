// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/surveys.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/crews/symbolizer.h"
#include "userspace/profile/source_frames.h"
#include "userspace/profiles/profile_builder.h"
#include "userspace/worker/file_version.h"

namespace heaptap::recording {
namespace {

// Younger processes have no history yet: most of them end soon.
constexpr absl::Duration kYoung = absl::Seconds(1);

std::optional<int64_t> Known(int64_t bytes) { return bytes < 0 ? std::nullopt : std::optional<int64_t>(bytes); }

}  // namespace

profile::Survey Surveys::Take(const profile::Activities& known, absl::Duration interval) {
  profile::Survey survey;
  const base::Instant begin = base::Now();
  const std::map<uint64_t, bpf::Losses> all_losses = means_.books.entries().ReadAllLosses();
  for (const auto& [process_id, target] : means_.targets) {
    const bool has_tallies = target.books->last.probes != 0;
    if (target.ending.has_value() || !means_.dumps.HasProfile(target, has_tallies)) continue;
    if (begin - target.books->begun < std::min(kYoung, interval)) continue;
    profile::SurveyedProcess process = {.ref = {target.pid, process_id},
                                        .command = target.name,
                                        .owner = target.facts->owner,
                                        .since = target.books->since,
                                        .lg_sample = target.LgSample(),
                                        .activity = target.books->last.allocated_weight + target.books->last.probes};
    const auto last = known.find(process_id);
    process.is_changed = last == known.end() || last->second != process.activity;
    if (last == known.end()) {
      // The next survey will have the process.
      if (!target.facts->is_known()) continue;
      process.control_groups = target.facts->control_groups;
      process.script = target.facts->script;
    }
    process.resident_bytes = Known(target.facts->memory.resident_bytes);
    process.limit_bytes = Known(target.facts->memory.limit_bytes);
    const auto own = all_losses.find(process_id);
    const bpf::Losses losses = own == all_losses.end() ? bpf::Losses{} : own->second;
    for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < losses.size(); reason++) process.lost += losses[reason].events;
    survey.processes.push_back(std::move(process));
  }
  survey.dumps = means_.dumps.TakeWritten();
  return survey;
}

void Surveys::ForgetEnded(profile::Survey& survey) const {
  for (profile::SurveyedProcess& process : survey.processes) {
    if (!process.is_changed || means_.targets.Find(process.ref.process_id) != nullptr) continue;
    process.is_changed = false;
    process.stacks.clear();
  }
}

void Surveys::Stacks(const profile::ProcessRef& process, absl::Span<const uint64_t> stack_ids, const StacksDone& done) {
  const Target* target = means_.targets.Find(process.process_id);
  if (target == nullptr || target->ending.has_value() ||
      !means_.books.processes().IsCurrent(process.pid, process.process_id)) {
    return done(absl::NotFoundError(absl::StrCat("process ", process.pid, " has ended")));
  }
  if (!means_.orders.HasRoom(process.pid)) {
    return done(absl::ResourceExhaustedError(absl::StrCat("hands have no time for process ", process.pid)));
  }
  const auto stacks = std::make_shared<profile::SurveyedStacks>(ReadStacks(*target, stack_ids));
  means_.orders.Start(
      process.pid,
      [pid = process.pid, stacks](worker::Hands& hands, int) {
        for (auto& file : stacks->files) {
          const absl::StatusOr<worker::FileVersion> version = hands.Version(pid, file.mapping);
          if (version.ok()) file.version = worker::Encode(*version);
        }
      },
      [stacks, done] { done(std::move(*stacks)); });
}

profile::SurveyedStacks Surveys::ReadStacks(const Target& target, absl::Span<const uint64_t> stack_ids) {
  const ProfileSubject subject = means_.dumps.Subject(target);
  profile::SurveyedStacks result;
  std::map<const elf::Mapping*, size_t> files;
  for (const uint64_t id : stack_ids.subspan(0, kMaxStacks)) {
    const StackFrames stack = ProgramFrames(means_.books.entries(), subject, id);
    std::vector<profile::SurveyedStacks::Frame> frames;
    for (const uint64_t frame : stack.frames) {
      const uint64_t address = profile::CallAddress(frame);
      const elf::Mapping* mapping = subject.space == nullptr ? nullptr : subject.space->mappings.Find(address);
      if (mapping == nullptr || mapping->inode == 0) {
        frames.push_back({.offset = address});
        continue;
      }
      const auto [found, is_new] = files.try_emplace(mapping, result.files.size());
      if (is_new) result.files.push_back({.mapping = *mapping, .version = ""});
      frames.push_back({.file = found->second, .offset = worker::FileOffset(*mapping, address)});
    }
    const bool is_finished = stack.end != HEAPTAP_STACK_UNFINISHED || id == HEAPTAP_NO_STACK;
    result.stacks.push_back({.frames = std::move(frames), .is_finished = is_finished});
  }
  if (subject.space != nullptr) result.executable = subject.space->executable;
  return result;
}

}  // namespace heaptap::recording
