// SPDX-License-Identifier: Apache-2.0
#include "userspace/crews/looks.h"

#include <cstdint>
#include <optional>
#include <set>

#include "userspace/base/bounds.h"
#include "userspace/base/mutex.h"
#include "userspace/base/user_ids.h"
#include "userspace/process/facts.h"
#include "userspace/process/handle.h"
#include "userspace/process/proc_files.h"

namespace heaptap::worker {
namespace {

// The most looks under way. One user has one, so that the looks of others need not wait for it.
constexpr size_t kMaxOfAll = 6;
constexpr size_t kMaxOfRoot = 2;

// Longer than the usual interval of the history, so that the same hands serve all of its points. A start costs more
// than a hundred looks.
constexpr absl::Duration kMaxIdleTime = absl::Seconds(15);

// How many times the patience of the hands one look may take. On a busy machine the files of a large process take some
// tenths of a second.
constexpr int kMaxPatiences = 10;

absl::StatusOr<LookedAt> LookAtProcess(Hands& hands, int identify, pid_t pid, absl::Duration time) {
  const base::Instant begin = base::Now();
  absl::StatusOr<std::vector<elf::Mapping>> mappings = hands.ReadExecutableMappings(pid);
  if (absl::IsPermissionDenied(mappings.status())) return process::NoAccess(pid);
  if (!mappings.ok()) return mappings.status();
  const base::Instant end = begin + time;
  absl::StatusOr<process::Facts> facts = hands.Facts(pid);
  if (!facts.ok()) return facts.status();
  LookedAt found = {.begin = begin, .facts = *std::move(facts), .mappings = *std::move(mappings)};
  std::set<std::pair<uint64_t, uint64_t>> seen;  // device and inode
  for (size_t i = 0; i < found.mappings.size(); i++) {
    const elf::Mapping& mapping = found.mappings[i];
    const uint64_t device = uint64_t{mapping.device_major} << 32 | mapping.device_minor;
    if (mapping.inode == 0 || !seen.insert({device, mapping.inode}).second) continue;
    if (seen.size() > Looks::kMaxFiles) {
      base::CountBeyond(base::Bound::kFilesOfProcess);
      break;
    }
    const absl::StatusOr<MappedFile> file = hands.Look(identify, pid, mapping);
    if (file.ok()) found.files.push_back({.mapping = i, .file = *file});
    // Further looks would be refused.
    if (absl::IsDeadlineExceeded(file.status())) return file.status();
    if (base::Now() > end) return absl::DeadlineExceededError("the files of the process take too much time");
  }
  return found;
}

}  // namespace

Looks::Looks(int identify, base::SubordinateIds ids, const Hands::Bounds& bounds, size_t waiting, Place place)
    : identify_(identify),
      bounds_(bounds),
      threads_({.of_user = 1,
                .of_root = kMaxOfRoot,
                .of_all = kMaxOfAll,
                .waiting = waiting,
                .share = kShare,
                .burst = kBurst,
                .is_in_caller = place == Place::kCaller},
               std::move(ids)) {}

uid_t Looks::PayerOf(pid_t pid) const { return threads_.PayerFor(process::UserOf(pid).value_or(base::kUnknownUser)); }

std::unique_ptr<Hands> Looks::TakeHands() {
  base::MutexLock lock(&mutex_);
  if (idle_.empty()) return std::make_unique<Hands>(bounds_);
  std::unique_ptr<Hands> hands = std::move(idle_.back().hands);
  idle_.pop_back();
  return hands;
}

void Looks::GiveBack(std::unique_ptr<Hands> hands) {
  base::MutexLock lock(&mutex_);
  idle_.push_back({base::Now(), std::move(hands)});
}

void Looks::EndIdle(base::Instant now) {
  base::MutexLock lock(&mutex_);
  std::erase_if(idle_, [now](const Idle& idle) { return now - idle.since > kMaxIdleTime; });
}

void Looks::Start(pid_t pid, Work look, std::function<void()> done) {
  const auto work = [this, look = std::move(look)] {
    std::unique_ptr<Hands> hands = TakeHands();
    look(*hands, identify_);
    const absl::Duration processor_wait = hands->TakeProcessorWait();
    GiveBack(std::move(hands));
    return processor_wait;
  };
  threads_.Start(PayerOf(pid), work, std::move(done));
}

void Looks::Inspect(pid_t pid, InspectDone done) {
  const auto found = std::make_shared<absl::StatusOr<LookedAt>>(LookedAt());
  const absl::Duration time = kMaxPatiences * bounds_.patience;
  Start(
      pid, [pid, found, time](Hands& hands, int identify) { *found = LookAtProcess(hands, identify, pid, time); },
      [found, done = std::move(done)] { done(std::move(*found)); });
}

void Looks::Look(pid_t pid, const elf::Mapping& mapping, FileDone done) {
  const auto found = std::make_shared<absl::StatusOr<MappedFile>>(MappedFile());
  Start(
      pid, [pid, mapping, found](Hands& hands, int identify) { *found = hands.Look(identify, pid, mapping); },
      [found, done = std::move(done)] { done(*found); });
}

}  // namespace heaptap::worker
