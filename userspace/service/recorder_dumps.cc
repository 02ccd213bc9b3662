// SPDX-License-Identifier: Apache-2.0
//
// The dumps of a recording, and what is said about them.
#include <fnmatch.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "userspace/export/log_json.h"
#include "userspace/export/recent_json.h"
#include "userspace/service/books_json.h"
#include "userspace/service/control_block.h"
#include "userspace/service/messages.h"
#include "userspace/service/record_builder.h"
#include "userspace/service/recorder.h"

namespace heaptap::service {
namespace {

std::string Count(uint64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

const char* KindName(heaptap_dump_kind kind) {
  switch (kind) {
    case HEAPTAP_DUMP_FINAL:
      return "final";
    case HEAPTAP_DUMP_INTERVAL:
      return "interval";
    case HEAPTAP_DUMP_MANUAL:
      return "manual";
    case HEAPTAP_DUMP_HIGH_WATER:
      return "high_water";
  }
  return "other";
}

// In a line.
constexpr size_t kMostNames = 8;

// A program that runs on another CPU may be between two halves of an entry; it needs microseconds.
constexpr int kSettleTries = 20;
constexpr timespec kSettleTime = {0, 5'000'000};

}  // namespace

const AddressSpace* Recorder::Space(const Target& target) const {
  return target.ending.has_value() ? target.ending->space.get() : spaces_.Find(target.pid);
}

ProfileSubject Recorder::Subject(const Target& target) const {
  return {.pid = target.pid,
          .process_id = target.process_id,
          .lg_sample = target.LgSample(),
          .allocator = target.allocator,
          .space = Space(target),
          .max_frames = target.max_frames};
}

absl::StatusOr<profile::Profile> Recorder::Build(const Target& target) const {
  absl::StatusOr<std::vector<bpf::TallyEntry>> tallies = books_->ReadTallies(target.process_id);
  if (!tallies.ok()) return tallies.status();
  return Build(target, *std::move(tallies));
}

profile::Profile Recorder::Build(const Target& target, std::vector<bpf::TallyEntry> tallies) const {
  return BuildProfile(*books_, Subject(target), std::move(tallies), mapping_events_->lost());
}

absl::StatusOr<Recorder::Contents> Recorder::MakeContents(const Target& target,
                                                          const heaptap_dump_request& request) const {
  if (request.kind == HEAPTAP_ASK_RECENT || request.kind == HEAPTAP_ASK_LOG) {
    const absl::StatusOr<profile::SampleRecords> records = BuildRecords(*books_, Subject(target), request.argument);
    if (!records.ok()) return records.status();
    const auto write = request.kind == HEAPTAP_ASK_LOG ? exporter::LogJson : exporter::RecentJson;
    return Contents{write(*records), {}, {}};
  }
  absl::StatusOr<profile::Profile> profile = Build(target);
  if (!profile.ok()) return profile.status();
  profile->raw = target.raw;
  return Contents{exporter::HeapV2(*profile), profile->Leaks(), profile->warnings};
}

absl::StatusOr<std::string> Recorder::Dump(Target& target, heaptap_dump_kind kind) {
  absl::StatusOr<profile::Profile> profile = Build(target);
  if (!profile.ok()) {
    Fail(profile.status());
    return profile.status();
  }
  return Write(target, kind, *profile);
}

absl::StatusOr<std::string> Recorder::Write(Target& target, heaptap_dump_kind kind, const profile::Profile& profile) {
  const absl::Time begin = absl::Now();
  const std::string contents = options_.format(profile);
  absl::StatusOr<std::string> written = options_.everyone.has_value()
                                            ? folder_.Write(target.name, target.pid, kind, target.sequence, contents)
                                            : folder_.Write(target.pid, kind, target.sequence, contents);
  if (!written.ok()) {
    dump_errors_++;
    Fail(written.status());
    return written.status();
  }
  const profile::LeakSummary live = profile.Leaks();
  Say(absl::StrCat("wrote ", *written, ": ", Count(live.bytes, "byte"), " in ", Count(live.objects, "object"),
                   " live (", target.name.empty() ? "?" : target.name, ")"));
  SayLosses(profile.warnings);
  if (kind == HEAPTAP_DUMP_FINAL) AddStackEnds(profile);
  last_dump_ = absl::Now();
  dump_time_ += *last_dump_ - begin;
  dumps_counted_[KindName(kind)]++;
  if (pruner_.has_value()) {
    pruner_->Added(*written, contents.size());
    if (absl::StatusOr<DumpPruner::Removed> removed = pruner_->Prune(*last_dump_); !removed.ok()) {
      Fail(removed.status());
    }
  }
  return written;
}

void Recorder::AddStackEnds(const profile::Profile& profile) {
  for (size_t end = 0; end < profile.stack_ends.samples.size(); end++) {
    stack_ends_.samples[end] += profile.stack_ends.samples[end];
  }
  stack_ends_.without_stack += profile.stack_ends.without_stack;
}

std::string Recorder::StackSummary() const {
  uint64_t all = stack_ends_.without_stack;
  for (const uint64_t samples : stack_ends_.samples) all += samples;
  std::string line =
      absl::StrCat(Count(all, "sample"), ", ", stack_ends_.samples[HEAPTAP_STACK_WHOLE], " of them with whole stacks");
  const char* separator = "; outer frames missing: ";
  for (uint32_t end = HEAPTAP_STACK_WHOLE + 1; end < HEAPTAP_STACK_ENDS; end++) {
    if (stack_ends_.samples[end] == 0) continue;
    absl::StrAppend(&line, separator, stack_ends_.samples[end], " at ", bpf::StackEndDescription(end));
    separator = ", ";
  }
  if (stack_ends_.without_stack != 0) absl::StrAppend(&line, "; without stack: ", stack_ends_.without_stack);
  return line;
}

std::string Recorder::WithoutSamples() const {
  if (without_samples_.empty()) return "";
  std::map<std::string, int> counts;
  for (const std::string& name : without_samples_) counts[name]++;
  std::vector<std::string> names;
  for (const auto& [name, count] : counts) {
    if (names.size() == kMostNames) {
      names.emplace_back("...");
      break;
    }
    names.push_back(count == 1 ? name : absl::StrCat(name, " (", count, " times)"));
  }
  return absl::StrCat("no dump of ", without_samples_.size(), without_samples_.size() == 1 ? " process" : " processes",
                      " without a sample: ", absl::StrJoin(names, ", "), "; --exact makes each allocation a sample");
}

bool Recorder::HasProfile(const Target& target) {
  if (target.started || !target.policy.record) return HasProfile(target, false);
  absl::StatusOr<std::vector<bpf::TallyEntry>> tallies = books_->ReadTallies(target.process_id);
  return HasProfile(target, tallies.ok() && !tallies->empty());
}

bool Recorder::HasProfile(const Target& target, bool has_tallies) {
  // Another allocator that keeps to the contract may have no heaptap:start.
  const auto matches = [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), target.name.c_str(), 0) == 0;
  };
  const bool is_wanted = options_.only.empty() || std::any_of(options_.only.begin(), options_.only.end(), matches);
  const bool has_profile = is_wanted && target.policy.record && (target.started || has_tallies);
  recorded_any_ |= has_profile;
  return has_profile;
}

void Recorder::DumpAll(heaptap_dump_kind kind) {
  for (auto& [process_id, target] : targets_) {
    if (!target.ending.has_value() && HasProfile(target)) Dump(target, kind).IgnoreError();
  }
}

void Recorder::Abandon() {
  for (auto& [process_id, target] : targets_) {
    if (target.ending.has_value()) continue;
    // The process may end at any moment; then there is nothing to put back.
    if (target.control_address != 0) {
      WithMemory(target, [address = target.control_address](const ProcessHandle& handle) {
        return ReleaseControl(handle, address);
      }).IgnoreError();
    }
    books_->Untrack(target.pid);
  }
  probe_files_.Detach();
}

void Recorder::Finish() {
  Pump();
  Abandon();
  Pump();  // samples come until the probes are gone
  std::vector<const Target*> dumped;
  for (auto& [process_id, target] : targets_) {
    if (answers_.WaitFor(process_id) != 0) failed_ = true;
    if (!HasProfile(target)) continue;
    Dump(target, HEAPTAP_DUMP_FINAL).IgnoreError();
    dumped.push_back(&target);
  }
  if (options_.show_books) SayBooks(std::move(dumped));
  targets_.clear();
}

void Recorder::SayLeaks(const Target& target, const profile::LeakSummary& leaks, const std::string& path) const {
  if (leaks.bytes == 0) return;
  SayPlain(absl::StrCat("<heaptap>: Leak approximation summary: ~", Count(leaks.bytes, "byte"), ", ~",
                        Count(leaks.objects, "object"), ", >= ", Count(leaks.contexts, "context")));
  const AddressSpace* space = Space(target);
  const std::string program = space == nullptr ? "" : space->executable;
  const std::string dump =
      path.empty() ? absl::StrCat("on the dump of process ", target.pid, " (", target.name, ")") : path;
  SayPlain(absl::StrCat("<heaptap>: Run jeprof --text ", program.empty() ? "PROGRAM" : Printable(program), " ", dump,
                        " for leak detail"));
}

void Recorder::SayLosses(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    // Each reason once; the dumps have the numbers as they grow.
    const size_t reason = warning.find_first_not_of("0123456789 ", sizeof("heaptap:"));
    if (losses_said_.insert(warning.substr(reason, warning.find('(') - reason)).second) SayPlain(warning);
  }
}

void Recorder::SayBooks(std::vector<const Target*> targets) const {
  for (int tries = 1; tries <= kSettleTries && !targets.empty(); tries++) {
    if (tries > 1) nanosleep(&kSettleTime, nullptr);
    absl::StatusOr<std::map<uint64_t, std::vector<bpf::TallyEntry>>> tallies = books_->ReadAllTallies();
    absl::StatusOr<std::map<uint64_t, bpf::LiveTotals>> live = books_->ReadLiveTotals();
    if (!tallies.ok() || !live.ok()) return;
    std::erase_if(targets, [&](const Target* target) {
      const BooksLine line = BooksJson(*target, (*tallies)[target->process_id], (*live)[target->process_id],
                                       books_->ReadLosses(target->process_id));
      if (!line.balanced && tries < kSettleTries) return false;
      SayPlain(line.text);
      return true;
    });
  }
}

}  // namespace heaptap::service
