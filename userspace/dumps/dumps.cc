// SPDX-License-Identifier: Apache-2.0
#include "userspace/dumps/dumps.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/base/printable_text.h"
#include "userspace/profiles/books_json.h"
#include "userspace/report/human.h"

namespace heaptap::recording {
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

// An eBPF program on another CPU may have updated only one of two maps; it needs microseconds for the other.
constexpr int kSettleTries = 20;
constexpr absl::Duration kSettleTime = absl::Milliseconds(5);

}  // namespace

Dumps::Dumps(const Means& means, const RecorderOptions& options, DumpFolder folder)
    : means_(means),
      orders_(means.entries, means.processes, means.orders),
      options_(options),
      folder_(std::move(folder)) {}

absl::Status Dumps::StartPruning(const Retention& retention) {
  base::FileDescriptor folder(folder_.Duplicate());
  if (!folder.valid()) {
    return absl::UnavailableError(absl::StrCat(options_.system_wide->state_folder, ": ", strerror(errno)));
  }
  pruner_.emplace(std::move(folder), retention);
  return absl::OkStatus();
}

bool Dumps::RenewFolder() {
  if (!pruner_.has_value() || !folder_.Renew()) return false;
  base::Say(absl::StrCat("there is another folder ", base::Printable(options_.system_wide->state_folder),
                         " now; dumps go there"));
  if (absl::Status status = StartPruning(pruner_->retention()); !status.ok()) Fail(status);
  return true;
}

void Dumps::Prune(absl::Time now) {
  if (pruner_.has_value()) pruner_->Prune(now).status().IgnoreError();  // it prints its errors itself
}

void Dumps::AddFigures(profile::CollectorFigures& figures) const {
  figures.dumps = dumps_counted_;
  figures.dump_errors = dump_errors_;
  figures.dump_time = dump_time_;
  figures.last_dump = last_dump_;
}

void Dumps::Fail(const absl::Status& status) {
  failed_ = true;
  base::Say(status.message());
}

const AddressSpace* Dumps::Space(const Target& target) const {
  return target.ending.has_value() ? target.ending->space.get() : means_.spaces.Find(target.pid);
}

ProfileSubject Dumps::Subject(const Target& target) {
  return {.pid = target.pid,
          .process_id = target.process_id,
          .lg_sample = target.LgSample(),
          .allocator = target.image->allocator,
          .space = Space(target),
          .max_frames = target.image->max_frames,
          .raw = false};
}

ProfilePlan Dumps::Plan(const Target& target) {
  if (!target.ending.has_value()) means_.unwinding.IdentifyFiles(target.pid);
  ProfilePlan plan = {.process = {target.pid, target.process_id},
                      .space = target.ending.has_value() ? target.ending->space : means_.spaces.Share(target.pid),
                      .subject = Subject(target),
                      .mappings_lost = means_.mapping_events.lost()};
  plan.subject.space = plan.space.get();
  if (target.ending.has_value()) return plan;
  const absl::StatusOr<heaptap_process> process = means_.processes.Read(target.pid);
  if (process.ok() && process->identity.id == target.process_id) plan.subject.user = process->identity.user;
  return plan;
}

void Dumps::TakeFreesAndPlan(const Target& target, std::function<void(ProfilePlan)> done) {
  // Meanwhile the process may start another program, and then the mappings are those of the other program.
  const auto before = std::make_shared<ProfilePlan>(Plan(target));
  orders_.TakeFrees(target, [this, before, done = std::move(done)] {
    const Target* const now = means_.targets.Find(before->process.process_id);
    done(now == nullptr ? std::move(*before) : Plan(*now));
  });
}

void Dumps::Complete(const Target& target, std::shared_ptr<profile::Profile> profile, std::function<void()> done) {
  // The latest samples may be of files that were mapped meanwhile.
  if (!target.ending.has_value()) means_.unwinding.IdentifyFiles(target.pid);
  if (const AddressSpace* space = Space(target); space != nullptr) {
    profile->mappings = elf::InAgreement(profile->mappings, space->mappings.All());
  }
  orders_.NameThreads(target, std::move(profile), std::move(done));
}

struct Dumps::Making {
  uint64_t process_id;
  Use use;
  Done done;
  ProfilePlan plan = {};
  absl::StatusOr<BuiltProfile> built = BuiltProfile{};
};

void Dumps::Make(const Target& target, Use use, Done done) {
  making_.insert(target.process_id);
  const auto making =
      std::make_shared<Making>(Making{.process_id = target.process_id, .use = std::move(use), .done = std::move(done)});
  TakeFreesAndPlan(target, [this, making](ProfilePlan plan) {
    making->plan = std::move(plan);
    BuildInBackground(making);
  });
}

void Dumps::BuildInBackground(const std::shared_ptr<Making>& making) {
  means_.background.Run(
      [this, making] { making->built = BuildPlanned(means_.entries, making->plan); },
      [this, making] {
        if (!making->built.ok()) {
          Fail(making->built.status());
          return Finish(*making);
        }
        const Target* const target = means_.targets.Find(making->process_id);
        if (target == nullptr) return UseInBackground(making);
        Complete(*target, {making, &making->built->profile}, [this, making] { UseInBackground(making); });
      });
}

void Dumps::UseInBackground(const std::shared_ptr<Making>& making) {
  means_.background.Run(
      [making] {
        const base::Instant begin = base::Now();
        profile::Profile& profile = making->built->profile;
        making->use(profile);
        making->built->cost += base::Now() - begin;
        // Freed here, because this takes long.
        profile = {};
      },
      [this, making] { Finish(*making); });
}

void Dumps::Finish(Making& making) {
  making_.erase(making_.find(making.process_id));
  making.done(making.built.status(), making.built.ok() ? making.built->cost : absl::ZeroDuration());
}

void Dumps::Write(const Target& target, heaptap_dump_kind kind, OnDone on_done) {
  const auto filled = std::make_shared<Filled>();
  // The target as it is now: the process may start another program meanwhile.
  const auto before = std::make_shared<Target>(target);
  Make(
      target, [this, filled](const profile::Profile& profile) { *filled = Fill(profile); },
      [this, filled, before, kind, on_done = std::move(on_done)](const absl::Status& status, absl::Duration cost) {
        if (status.ok()) {
          Target* target = means_.targets.Find(before->process_id);
          Publish(target != nullptr ? *target : *before, kind, *filled).IgnoreError();
        }
        if (on_done != nullptr) on_done(*before, cost);
      });
}

Dumps::Filled Dumps::Fill(const profile::Profile& profile) const {
  const base::Instant begin = base::Now();
  Filled filled = {.file = folder_.Fill(options_.format(profile)),
                   .cost = {},
                   .live = profile.Leaks(),
                   .stack_ends = profile.stack_ends,
                   .warnings = profile.warnings};
  filled.cost = base::Now() - begin;
  return filled;
}

absl::StatusOr<std::string> Dumps::Publish(Target& target, heaptap_dump_kind kind, const Filled& filled) {
  absl::StatusOr<std::string> written =
      options_.system_wide.has_value()
          ? folder_.Name(*filled.file, target.name, target.pid, kind, target.sequence.state_)
          : folder_.Name(*filled.file, target.pid, kind, target.sequence.state_);
  if (!written.ok()) {
    dump_errors_++;
    Fail(written.status());
    return written.status();
  }
  const profile::LeakSummary& live = filled.live;
  base::Say(absl::StrCat("wrote ", *written, ": ", Count(live.bytes, "byte"), " in ", Count(live.objects, "object"),
                         " live (", target.name, ")"));
  SayLosses(filled.warnings);
  if (kind == HEAPTAP_DUMP_FINAL) {
    AddStackEnds(filled.stack_ends);
    last_dumps_++;
  }
  if (kind == HEAPTAP_DUMP_FINAL || kind == HEAPTAP_DUMP_HIGH_WATER) {
    Largest& largest = kind == HEAPTAP_DUMP_FINAL ? largest_last_ : highest_;
    if (largest.path.empty() || live.bytes > largest.bytes) {
      largest = {.path = *written, .name = target.name, .process_id = target.process_id, .bytes = live.bytes};
    }
  }
  if (target.ending.has_value() && target.process_id == highest_.process_id) highest_.peak = target.ending->peak;
  last_dump_ = base::WallNow();
  dump_time_ += filled.cost;
  dumps_counted_[KindName(kind)]++;
  written_.push_back({.process = {target.pid, target.process_id}, .time = *last_dump_, .path = *written});
  if (written_.size() > kMaxWritten) written_.pop_front();
  if (pruner_.has_value()) pruner_->Added(*written, filled.file->size());
  Prune(*last_dump_);
  return written;
}

std::vector<profile::Survey::Dump> Dumps::TakeWritten() {
  std::vector<profile::Survey::Dump> taken(written_.begin(), written_.end());
  written_.clear();
  return taken;
}

void Dumps::AddStackEnds(const profile::StackEnds& ends) {
  for (size_t end = 0; end < ends.samples.size(); end++) stack_ends_.samples[end] += ends.samples[end];
  stack_ends_.without_stack += ends.without_stack;
}

std::string Dumps::StackSummary() const {
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

std::string Dumps::MostLive() const {
  if (last_dumps_ < 2) return "";
  const std::string processes = absl::StrCat(last_dumps_, " processes wrote dumps");
  if (largest_last_.bytes == 0) return absl::StrCat(processes, "; none of them has live memory");
  return absl::StrCat(processes, "; most is live in ", base::Printable(largest_last_.path), " (", largest_last_.name,
                      ", ", report::HumanBytes(static_cast<double>(largest_last_.bytes)), ")");
}

std::string Dumps::Highest() const {
  if (highest_.bytes <= largest_last_.bytes) return "";
  const std::string live = report::HumanBytes(static_cast<double>(highest_.bytes));
  const std::string dump = absl::StrCat(base::Printable(highest_.path), " (", highest_.name, ", ", live, ")");
  // A dump is made after the mark that asks for it, and the program goes on meanwhile.
  const std::string peak = report::HumanBytes(static_cast<double>(std::max(highest_.peak, highest_.bytes)));
  if (peak == live) return absl::StrCat("most was live at the high-water mark of ", dump);
  return absl::StrCat("of all dumps, the one at the high-water mark of ", dump, " has most live bytes; the peak was ",
                      peak);
}

std::string Dumps::WithoutSamples(bool is_explained) const {
  if (without_samples_.empty()) return "";
  return absl::StrCat("no dump of ", without_samples_.processes(),
                      without_samples_.processes() == 1 ? " process" : " processes",
                      some_sampled_ ? " without a sample: " : " that allocated nothing: ", without_samples_.Text(),
                      some_sampled_ && !is_explained ? "; use --exact to record every allocation" : "");
}

std::string Dumps::WithoutAllocator(bool is_explained) const {
  if (without_allocator_.empty()) return "";
  return absl::StrCat(
      "not recorded: ", without_allocator_.Text(),
      is_explained ? ""
                   : "; no sampled allocator was seen there: static and set-user-ID programs have none, and one that "
                     "preloads another copy of the library may have ended before heaptap attached to that");
}

bool Dumps::HasProfile(const Target& target) {
  if (target.image->has_started || !target.policy->record) return HasProfile(target, false);
  const absl::StatusOr<heaptap_process> process = means_.processes.Read(target.pid);
  if (process.ok() && process->identity.id == target.process_id) {
    // Signed: a reset that races with a sample can leave the count at -1.
    return HasProfile(target, static_cast<int64_t>(process->figures.tallies) > 0);
  }
  // The kernel no longer knows the process.
  absl::StatusOr<std::vector<bpf::TallyEntry>> tallies = means_.entries.ReadTallies(target.process_id);
  return HasProfile(target, tallies.ok() && !tallies->empty());
}

bool Dumps::HasProfile(const Target& target, bool has_tallies) {
  // Other allocators that follow the contract may have no heaptap:start, so tallies count too.
  const bool has_profile = IsWanted(target) && (target.image->has_started || has_tallies);
  recorded_any_ |= has_profile;
  return has_profile;
}

bool Dumps::IsWanted(const Target& target) const {
  const auto matches = [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), target.name.c_str(), 0) == 0;
  };
  return target.policy->record && (options_.only.empty() || std::ranges::any_of(options_.only, matches));
}

std::vector<std::string> Dumps::LeakReport(const Target& target, const profile::LeakSummary& leaks,
                                           const std::string& path) const {
  if (leaks.bytes == 0) return {};
  const AddressSpace* space = Space(target);
  const std::string program = space == nullptr ? "" : space->executable;
  const std::string dump =
      path.empty() ? absl::StrCat("on the dump of process ", target.pid, " (", target.name, ")") : path;
  return {absl::StrCat("<heaptap>: Leak approximation summary: ~", Count(leaks.bytes, "byte"), ", ~",
                       Count(leaks.objects, "object"), ", >= ", Count(leaks.contexts, "context")),
          absl::StrCat("<heaptap>: Run jeprof --text ", program.empty() ? "PROGRAM" : base::AsciiOnly(program), " ",
                       dump, " for leak detail")};
}

void Dumps::SayLosses(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    // Each reason is printed once; the dumps have the current numbers.
    const size_t reason = warning.find_first_not_of("0123456789 ", sizeof("heaptap:"));
    if (losses_reported_.insert(warning.substr(reason, warning.find('(') - reason)).second) base::SayPlain(warning);
  }
}

void Dumps::SayBooks(std::vector<const Target*> targets) {
  for (int tries = 1; tries <= kSettleTries && !targets.empty(); tries++) {
    if (tries > 1) base::Sleep(kSettleTime);
    absl::StatusOr<std::map<uint64_t, std::vector<bpf::TallyEntry>>> tallies = means_.entries.ReadAllTallies();
    absl::StatusOr<std::map<uint64_t, bpf::LiveTotals>> live = means_.entries.ReadLiveTotals();
    if (!tallies.ok() || !live.ok()) {
      // The kernel may have no memory for a moment.
      if (tries < kSettleTries) continue;
      return Fail(tallies.ok() ? live.status() : tallies.status());
    }
    std::erase_if(targets, [&](const Target* target) {
      const BooksLine line = BooksJson(target->pid, target->name, (*tallies)[target->process_id],
                                       (*live)[target->process_id], means_.entries.ReadLosses(target->process_id));
      if (!line.balanced && tries < kSettleTries) return false;
      base::SayPlain(line.text);
      return true;
    });
  }
}

}  // namespace heaptap::recording
