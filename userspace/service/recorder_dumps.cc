// SPDX-License-Identifier: Apache-2.0
//
// The dumps of a recording: on request, by triggers and at the end, and the messages about them.
#include <fnmatch.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "userspace/export/log_json.h"
#include "userspace/export/recent_json.h"
#include "userspace/service/books_json.h"
#include "userspace/service/control_block.h"
#include "userspace/service/dump_request.h"
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

// In one message.
constexpr size_t kMaxNames = 8;

// An eBPF program on another CPU may have updated only one of two maps; it needs microseconds for the other.
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
  return WriteDump(target, kind, *profile);
}

absl::StatusOr<std::string> Recorder::WriteDump(Target& target, heaptap_dump_kind kind,
                                                const profile::Profile& profile) {
  const absl::Time begin = absl::Now();
  const std::string contents = options_.format(profile);
  absl::StatusOr<std::string> written = options_.system_wide.has_value()
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
    if (names.size() == kMaxNames) {
      names.emplace_back("...");
      break;
    }
    names.push_back(count == 1 ? name : absl::StrCat(name, " (", count, " times)"));
  }
  return absl::StrCat("no dump of ", without_samples_.size(), without_samples_.size() == 1 ? " process" : " processes",
                      " without a sample: ", absl::StrJoin(names, ", "), "; use --exact to record every allocation");
}

bool Recorder::HasProfile(const Target& target) {
  if (target.started || !target.policy.record) return HasProfile(target, false);
  absl::StatusOr<std::vector<bpf::TallyEntry>> tallies = books_->ReadTallies(target.process_id);
  return HasProfile(target, tallies.ok() && !tallies->empty());
}

bool Recorder::HasProfile(const Target& target, bool has_tallies) {
  // Other allocators that follow the contract may have no heaptap:start, so tallies count too.
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
    // Fails if the process has ended; then there is nothing to restore.
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
  Pump();  // samples arrive until the probes are removed
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
    // Each reason once; the dumps have the current numbers.
    const size_t reason = warning.find_first_not_of("0123456789 ", sizeof("heaptap:"));
    if (losses_reported_.insert(warning.substr(reason, warning.find('(') - reason)).second) SayPlain(warning);
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

void Recorder::HandleTrigger(Target& target, heaptap_dump_kind kind) {
  // In a system-wide recording a process may cause triggers without end; one later dump covers them all.
  const absl::Time now = absl::Now();
  if (options_.system_wide.has_value() && now - target.triggered < kTriggerPause) {
    target.postponed = kind;
    return;
  }
  target.triggered = now;
  target.postponed.reset();
  Dump(target, kind).IgnoreError();
}

void Recorder::HandleDump(Target& target, const heaptap_event& event) {
  const heaptap_dump_request asked = RequestOf(event);
  if (asked.kind == HEAPTAP_ASK_TABLES) return AnswerTables(target, static_cast<uint32_t>(asked.argument));
  // The other collector answers, unless it has ended.
  if (target.foreign) {
    absl::Status status = WithMemory(target, [address = target.control_address](const ProcessHandle& handle) {
      absl::StatusOr<heaptap_control> control = ReadControl(handle, address);
      if (!control.ok()) return control.status();
      return OtherCollector(*control) == 0 ? absl::OkStatus() : absl::FailedPreconditionError("another's");
    });
    if (!status.ok()) return;
    target.foreign = false;
    target.other_collector = 0;
    WriteControl(target);
  }
  absl::StatusOr<ProcessHandle> handle = Open(event.tgid, target.process_id);
  if (!handle.ok()) return;  // the process has ended
  // A process that asks too often gets no answer, and costs no profile.
  if (!answers_.HasRoom(target.process_id)) return;
  // Sample records can be large: the child builds them, and its end frees the memory.
  const bool by_child = asked.kind == HEAPTAP_ASK_RECENT || asked.kind == HEAPTAP_ASK_LOG;
  absl::StatusOr<Contents> contents = Contents{};
  if (!by_child) contents = MakeContents(target, asked);
  if (!contents.ok()) Fail(contents.status());
  absl::Status status = answers_.Start(target.process_id, [&]() -> absl::Status {
    absl::StatusOr<heaptap_dump_request> request = ReadDumpRequest(*handle, event.argument);
    if (!request.ok()) return request.status();
    // The process may have given up and made another request, which these contents do not answer.
    if (asked.sequence != 0 && asked.sequence != request->sequence) return absl::OkStatus();
    if (by_child) contents = MakeContents(target, asked);
    if (!contents.ok()) return AnswerWithError(*handle, event.argument, *request, EIO);
    absl::Status answered = AnswerWithDump(*handle, event.argument, *request, contents->text, contents->leaks,
                                           [&] { return books_->IsCurrent(handle->pid(), target.process_id); });
    const bool is_silent = asked.kind == HEAPTAP_DUMP_FINAL && (asked.argument & HEAPTAP_FINAL_PRINT_LEAKS) != 0;
    // If the dump fails, the process keeps no file, and the collector's last dump reports the leaks.
    if (answered.ok() && is_silent) SayLeaks(target, contents->leaks, "");
    return answered;
  });
  if (!status.ok()) return Fail(status);
  if (asked.kind == HEAPTAP_DUMP_FINAL) target.own_final = true;
  if (contents.ok()) SayLosses(contents->warnings);
}

void Recorder::RefuseDump(const heaptap_event& event) {
  // Probes are attached for every process, so requests of processes that others record arrive here too.
  if (!answers_.HasRoom(AnswerProcesses::kUnrecorded)) return;
  absl::StatusOr<ProcessHandle> handle = ProcessHandle::Open(event.tgid);
  absl::StatusOr<std::vector<elf::Mapping>> mappings = elf::ReadExecutableMappings(event.tgid);
  if (!handle.ok() || !mappings.ok()) return;
  // A courtesy answer: its failure is not reported.
  answers_
      .Start(AnswerProcesses::kUnrecorded,
             [&, collector = getpid()] {
               RefuseUnrecorded(*handle, *mappings, event.argument, collector);
               return absl::OkStatus();
             })
      .IgnoreError();
}

void Recorder::RefuseUnrecorded(const ProcessHandle& process, const std::vector<elf::Mapping>& mappings,
                                uint64_t address, pid_t collector) const {
  absl::StatusOr<heaptap_dump_request> request = ReadDumpRequest(process, address);
  if (!request.ok()) return;
  for (const elf::Mapping& mapping : mappings) {
    if (mapping.inode == 0) continue;
    absl::StatusOr<elf::MappedFile> file = elf::OpenMapped(process.pid(), mapping);
    if (!file.ok() || !probe_files_.IsAttached(file->file.get())) continue;
    absl::StatusOr<uint64_t> control_address = FindControl(file->file.get(), mapping);
    if (!control_address.ok()) continue;
    absl::StatusOr<heaptap_control> control = ReadControl(process, *control_address);
    const bool is_ours = control.ok() && control->collector_pid == static_cast<uint32_t>(collector);
    if (control.ok() && (is_ours || OtherCollector(*control) == 0)) {
      AnswerWithError(process, address, *request, ESRCH).IgnoreError();
    }
    return;
  }
}

}  // namespace heaptap::service
