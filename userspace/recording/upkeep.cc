// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/upkeep.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "userspace/base/clock.h"
#include "userspace/process/facts.h"
#include "userspace/process/memory_use.h"
#include "userspace/profile/profile.h"

namespace heaptap::recording {
namespace {

// The state of younger processes is not saved: most of them end soon.
constexpr absl::Duration kSaveAfter = absl::Seconds(1);

// The time for saving states in each second, and at the end.
constexpr absl::Duration kSaveTime = absl::Milliseconds(20);
constexpr absl::Duration kLastSaveTime = absl::Seconds(2);

// The time for folding in each call.
constexpr absl::Duration kFoldTime = absl::Milliseconds(10);
// The number of tallies of a process that are folded even if that time is over, so that a look at its threads is never
// in vain.
constexpr size_t kFoldsAtLeast = 256;

// Folding begins when tallies take this share of the map, or of a process's bound. A process without a bound may have
// as many tallies as are still free, so one process alone never has more than half of the map.
constexpr double kFoldAt = 0.25;
// Tallies are folded again when the share has grown by kWorthFolding; above kAlmostFull each second, as long as that
// gains something; and otherwise after a pause. So at most a five-hundredth of the time is spent in vain, or a
// hundredth when the map is almost full. Living threads can fill the map too, and their tallies cannot be folded.
constexpr double kWorthFolding = 1.0 / 32;
constexpr double kAlmostFull = 0.9;
constexpr double kFoldPausePerCost = 500;
constexpr double kUrgentPausePerCost = 100;

// The C library gives back only the end of a heap (M_TRIM_THRESHOLD), and profiles for many clients at once leave
// hundreds of megabytes below a small block that stays. Giving back the rest takes milliseconds, during which other
// threads may wait for memory.
constexpr int64_t kWorthReturning = 32 << 20;
constexpr absl::Duration kReturnPause = absl::Seconds(5);

// Memory that is resident but not in use. The stacks of threads count too, and are small.
int64_t KeptBytes() {
  const struct mallinfo2 used = mallinfo2();
  return process::AnonymousBytes(getpid()) - static_cast<int64_t>(used.uordblks + used.hblkhd);
}

// Whether the tally can be folded if its thread has ended.
bool MayBeFolded(const bpf::TallyEntry& entry) {
  return entry.tid != 0 && !profile::IsHeap(entry.tid) && entry.tally.allocated.objects == entry.tally.freed.objects;
}

}  // namespace

void Upkeep::SaveStates(TargetStates& states, base::Instant now) {
  Save(states, now - kSaveAfter, base::Now() + kSaveTime);
}

void Upkeep::SaveAllStates(TargetStates& states) {
  const base::Instant end = base::Now() + kLastSaveTime;
  do {
    Save(states, base::Instant::InfiniteFuture(), end);
    states.WaitUntilIdle(end);
  } while (has_more_ && base::Now() < end);
}

void Upkeep::Save(TargetStates& states, base::Instant old, base::Instant end) {
  has_more_ = false;
  saving_now_++;
  const absl::Cleanup end_of_round = [this] { NoteSaved(0, absl::OkStatus()); };
  // Continues where the last call stopped.
  auto next = means_.targets.upper_bound(last_saved_);
  for (size_t left = means_.targets.size(); left > 0; left--, ++next) {
    if (next == means_.targets.end()) next = means_.targets.begin();
    auto& [process_id, target] = *next;
    // Most processes are short-lived, but a rate that a client has asked for must not be forgotten.
    const bool is_young = target.books->begun > old && !target.control->asked_lg_sample.has_value();
    if (target.is_saved || target.ending.has_value() || is_young) continue;
    const AddressSpace* space = means_.dumps.Space(target);
    if (space == nullptr) continue;
    has_more_ = states.IsBusy();
    if (has_more_) return;
    target.is_saved = true;
    saving_now_++;
    states.Save(target, *space, [this, id = process_id](const absl::Status& status) { NoteSaved(id, status); });
    last_saved_ = process_id;
    if (base::Now() > end) break;
  }
}

void Upkeep::NoteSaved(uint64_t process_id, const absl::Status& status) {
  result_.Update(status);
  // One message for all states: some may succeed, and others fail.
  if (--saving_now_ == 0) saving_.Note(std::exchange(result_, absl::OkStatus()));
  if (Target* const target = means_.targets.Find(process_id); target != nullptr && !status.ok()) {
    target->is_saved = false;
  }
}

void Upkeep::FoldWhenFull(const std::map<uint64_t, bpf::RecordedProcess>& processes, uint64_t bound,
                          base::Instant now) {
  // Signed: a reset that races with a sample can leave the count at -1.
  const auto share = [](int64_t tallies, uint64_t most) {
    return static_cast<double>(tallies) / static_cast<double>(most);
  };
  int64_t all = 0;
  double fullest = 0;
  for (const auto& [process_id, recorded] : processes) {
    const heaptap_process& process = recorded.process;
    const auto own = static_cast<int64_t>(process.figures.tallies);
    all += own;
    if (process.limits.max_tallies != 0) fullest = std::max(fullest, share(own, process.limits.max_tallies));
  }
  fullest = std::max(fullest, share(all, bound));
  // What the last fold has gained shows now.
  fullest_after_fold_ = std::min(fullest_after_fold_, fullest);
  if (fullest < kFoldAt || folding_.has_value()) return;
  const bool is_urgent = fullest > kAlmostFull;
  const bool is_worth_it = fullest > fullest_after_fold_ + kWorthFolding || (is_urgent && has_folded_);
  const double pause_per_cost = is_urgent ? kUrgentPausePerCost : kFoldPausePerCost;
  if (!is_worth_it && now - folded_ < pause_per_cost * fold_cost_) return;
  folding_ = Folding{.fullest = fullest};
  const auto candidates = std::make_shared<std::map<uint64_t, std::vector<bpf::TallyEntry>>>();
  const auto cost = std::make_shared<absl::Duration>();
  means_.background.Run(
      [entries = &means_.books.entries(), candidates, cost] {
        const base::Instant begin = base::Now();
        // What was read is good, even if the rest could not be read.
        entries
            ->VisitTallies([&](uint64_t process_id, const bpf::TallyEntry& entry) {
              if (MayBeFolded(entry)) (*candidates)[process_id].push_back(entry);
            })
            .IgnoreError();
        *cost = base::Now() - begin;
      },
      [this, candidates, cost] {
        folding_->is_read = true;
        folding_->cost = *cost;
        for (auto& [process_id, tallies] : *candidates) folding_->left.push_back({process_id, std::move(tallies)});
      });
}

void Upkeep::FoldSome() {
  if (!HasToFold()) return;
  const base::Instant begin = base::Now();
  const base::Instant end = begin + kFoldTime;
  std::deque<Candidates>& left = folding_->left;
  is_being_read_ = false;
  while (!left.empty() && !is_being_read_ && base::Now() < end) {
    Candidates next = std::move(left.front());
    left.pop_front();
    Fold(std::move(next), end);
  }
  const base::Instant now = base::Now();
  folding_->cost += now - begin;
  if (!left.empty() || folding_->looks != 0) return;
  folded_ = now;
  fold_cost_ = folding_->cost;
  has_folded_ = folding_->has_folded;
  fullest_after_fold_ = folding_->fullest;
  folding_.reset();
}

void Upkeep::Fold(Candidates candidates, base::Instant end) {
  const Target* target = means_.targets.Find(candidates.process_id);
  if (target == nullptr || target->ending.has_value()) return;
  // Read before the look.
  const absl::StatusOr<heaptap_process> process = means_.books.processes().Read(target->pid);
  if (!process.ok() || process->identity.id != candidates.process_id) return;
  const uint32_t begun = process->threads_begun;
  // The kernel refuses to fold what an outdated look cannot tell, so each new look is tried: a process may begin
  // threads all the time.
  if (candidates.living.has_value() && (candidates.is_fresh || candidates.threads_begun == begun)) {
    return FoldEnded(target->pid, std::move(candidates), end);
  }
  candidates.threads_begun = begun;
  if (means_.orders.HasRoom(target->pid)) LookAtThreads(target->pid, std::move(candidates));
}

void Upkeep::LookAtThreads(pid_t pid, Candidates candidates) {
  std::set<uint32_t> tids;
  for (const bpf::TallyEntry& entry : candidates.tallies) tids.insert(entry.tid);
  struct Look {
    std::vector<uint32_t> tids;
    Candidates candidates;
    absl::StatusOr<std::map<uint32_t, std::string>> names = std::map<uint32_t, std::string>();
  };
  const auto look = std::make_shared<Look>(
      Look{.tids = std::vector<uint32_t>(tids.begin(), tids.end()), .candidates = std::move(candidates)});
  folding_->looks++;
  means_.orders.Start(
      pid, [pid, look](worker::Hands& hands, int) { look->names = hands.ThreadNames(pid, look->tids); },
      [this, look] {
        folding_->looks--;
        if (!look->names.ok()) return;
        std::set<uint32_t>& living = look->candidates.living.emplace();
        for (const auto& [tid, name] : *look->names) living.insert(tid);
        look->candidates.is_fresh = true;
        folding_->left.push_front(std::move(look->candidates));
      });
}

void Upkeep::FoldEnded(pid_t pid, Candidates candidates, base::Instant end) {
  std::vector<bpf::TallyEntry>& tallies = candidates.tallies;
  absl::Mutex& mutex = means_.books.entries().folding();
  candidates.is_fresh = false;
  // Does not wait: this thread has other things to do.
  const bool is_free = mutex.TryLock();
  is_being_read_ = !is_free;
  if (is_free) {
    for (size_t tried = 1; !tallies.empty(); tallies.pop_back(), tried++) {
      if (tried % kFoldsAtLeast == 0 && base::Now() > end) break;
      const bpf::TallyEntry& entry = tallies.back();
      if (candidates.living->contains(entry.tid)) continue;
      means_.books.Fold(pid, candidates.process_id, entry, candidates.threads_begun);
      folding_->has_folded = true;
    }
    mutex.Unlock();
  }
  if (!tallies.empty()) folding_->left.push_front(std::move(candidates));
}

void Upkeep::ReturnMemory(base::Instant now) {
  if (is_returning_ || now - returned_ < kReturnPause || process::AnonymousBytes(getpid()) < kWorthReturning) return;
  is_returning_ = true;
  const auto give_back = [] {
    if (KeptBytes() >= kWorthReturning) malloc_trim(0);
  };
  means_.background.Run(give_back, [this] {
    is_returning_ = false;
    returned_ = base::Now();
  });
}

}  // namespace heaptap::recording
