// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/kernel_books.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "bpf/commands.h"
#include "bpf/heaptap.skel.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/map_access.h"

namespace heaptap::bpf {
namespace {

// After a sweep, the next one waits for this many times the duration of the sweep.
constexpr uint64_t kSweepPause = 20;
constexpr uint64_t kShortestSweepPause = 10'000'000;  // nanoseconds
// A sweep takes tens of milliseconds of a CPU, in which the kernel runs nothing else there. So one sweep serves all
// processes whose books are deleted in this time, unless the map has little room.
constexpr uint64_t kSweepWait = 5'000'000'000;  // nanoseconds

constexpr uint64_t kPage = 4096;

// The memory of a map that the kernel reports, in bytes; 0: it reports nothing.
uint64_t TellsMemory(const bpf_map* map) {
  std::ifstream file(absl::StrCat("/proc/self/fdinfo/", bpf_map__fd(map)));
  for (std::string line; std::getline(file, line);) {
    uint64_t bytes = 0;
    if (absl::StartsWith(line, "memlock:") && absl::SimpleAtoi(absl::StripPrefix(line, "memlock:"), &bytes)) {
      return bytes;
    }
  }
  return 0;
}

// Like bpf_map_memory_footprint() in kernel/bpf/syscall.c of Linux 6.1.
uint64_t MostMemory(const bpf_map* map) {
  uint64_t value = bpf_map__value_size(map);
  const bpf_map_type type = bpf_map__type(map);
  if (type == BPF_MAP_TYPE_PERCPU_ARRAY || type == BPF_MAP_TYPE_PERCPU_HASH) {
    value = (value + 7) / 8 * 8 * static_cast<uint64_t>(std::max(libbpf_num_possible_cpus(), 1));
  }
  // A ring buffer has no keys, and its size is its number of entries.
  const uint64_t entry = type == BPF_MAP_TYPE_RINGBUF ? 1 : (bpf_map__key_size(map) + value + 7) / 8 * 8;
  return (bpf_map__max_entries(map) * entry + kPage - 1) / kPage * kPage;
}

// Many CPUs can fill the ring buffer as fast as it is read. Events beyond this number wait for the next TakeEvents.
constexpr size_t kMaxEventsAtOnce = 1 << 16;
constexpr int kEnough = -EAGAIN;

// Header of a record in a ring buffer (BPF_RINGBUF_HDR_SZ).
constexpr size_t kRingHeader = 8;

int KeepEvent(void* context, void* data, size_t size) {
  auto& events = *static_cast<std::vector<heaptap_event>*>(context);
  if (size >= sizeof(heaptap_event)) {
    heaptap_event event;
    memcpy(&event, data, sizeof(event));
    events.push_back(event);
  }
  return events.size() < kMaxEventsAtOnce ? 0 : kEnough;
}

// False: there is no room.
bool Mark(const bpf_map* forgotten, uint64_t process_id) {
  const uint8_t mark = 1;
  return bpf_map__update_elem(forgotten, &process_id, sizeof(process_id), &mark, sizeof(mark), BPF_ANY) == 0;
}

std::vector<heaptap_loss_key> LossKeys(const std::set<uint64_t>& process_ids) {
  std::vector<heaptap_loss_key> keys;
  for (const uint64_t process_id : process_ids) {
    if (process_id == 0) continue;
    for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < HEAPTAP_LOSS_REASONS; reason++) {
      keys.push_back({process_id, reason, 0});
    }
  }
  return keys;
}

// A stack belongs to one process: the process id is part of the hash.
std::vector<uint64_t> StackKeys(const std::vector<heaptap_tally_key>& tallies) {
  std::vector<uint64_t> keys;
  for (const heaptap_tally_key& key : tallies) {
    if (key.stack_id != HEAPTAP_NO_STACK) keys.push_back(key.stack_id);
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Books>> KernelBooks::Load(const MapSizes& sizes) {
  std::unique_ptr<KernelBooks> books(new KernelBooks);
  if (absl::Status status = books->Open(sizes, nullptr); !status.ok()) return status;
  return books;
}

absl::StatusOr<std::unique_ptr<Books>> KernelBooks::LoadOrAdopt(const MapSizes& sizes, const Pins& pins) {
  const bool is_new = !KernelObject::HasRecording(pins);
  std::unique_ptr<KernelBooks> books(new KernelBooks);
  if (absl::Status status = books->Open(sizes, &pins); !status.ok()) {
    // A failed start must leave nothing in the kernel, except an earlier recording.
    if (is_new) pins.RemoveAll();
    return status;
  }
  return books;
}

absl::Status KernelBooks::Open(const MapSizes& sizes, const Pins* pins) {
  if (absl::Status status = object_.Open(sizes, pins); !status.ok()) return status;
  areas_.Open(object_.get(), program(Program::kGiveArea));
  entries_.Open(object_.get());
  processes_.Open();
  sweep_at_ = object_.SweepAt();
  if (adopted()) {
    absl::StatusOr<std::set<uint64_t>> closed = ReadClosed();
    if (!closed.ok()) return closed.status();
    base::MutexLock lock(&mutex_);
    forgotten_.assign(closed->begin(), closed->end());
  }
  ring_ = ring_buffer__new(bpf_map__fd(object_->maps.events), KeepEvent, &events_, nullptr);
  if (ring_ == nullptr) return KernelError(errno, "mapping the ring buffer");
  if (absl::Status status = unwind_.Open(object_.get(), program(Program::kInvalidateRules)); !status.ok()) {
    return status;
  }
  return object_.Start(pins);
}

KernelBooks::~KernelBooks() {
  if (ring_ != nullptr) ring_buffer__free(ring_);
}

int KernelBooks::events_fd() const { return ring_buffer__epoll_fd(ring_); }

absl::StatusOr<std::vector<heaptap_event>> KernelBooks::TakeEvents() {
  if (const int error = ring_buffer__consume(ring_); error < 0 && error != kEnough)
    return KernelError(error, "reading the ring buffer");
  events_fill_ = static_cast<double>(events_.size() * (sizeof(heaptap_event) + kRingHeader)) /
                 bpf_map__max_entries(object_->maps.events);
  return std::exchange(events_, {});
}

uint64_t KernelBooks::EventsLost() const { return object_.ReadCounter(HEAPTAP_COUNTER_EVENTS_LOST); }

bool KernelBooks::Fold(pid_t tgid, uint64_t process_id, const TallyEntry& entry, uint32_t threads_begun) {
  entries_.folding().AssertHeld();
  heaptap_fold argument = {.key = {process_id, entry.stack_id, entry.tid, 0},
                           .tgid = static_cast<uint32_t>(tgid),
                           .done = 0,
                           .threads_begun = threads_begun,
                           .reserved = 0};
  return RunProgram(program(Program::kFold), argument) == 0 && argument.done != 0;
}

bool KernelBooks::IsSweepDue() {
  base::MutexLock lock(&mutex_);
  if (sweep_again_at_ != 0) {
    if (base::Now().nanoseconds() < sweep_again_at_) return false;
    sweep_again_at_ = 0;
    object_.SetCounter(HEAPTAP_COUNTER_SWEEP_AT, sweep_at_);
  }
  if (forgotten_.empty()) return false;
  return base::Now().nanoseconds() >= forgotten_since_ + kSweepWait ||
         object_.ReadCounter(HEAPTAP_COUNTER_LIVE_ENTRIES) >= sweep_at_ / 2;
}

absl::Status KernelBooks::Sweep() {
  std::vector<uint64_t> swept;
  {
    base::MutexLock lock(&mutex_);
    swept = forgotten_;
  }
  const uint64_t begin = base::Now().nanoseconds();
  bpf_test_run_opts options = {};
  options.sz = sizeof(options);
  if (const int error = bpf_prog_test_run_opts(program(Program::kSweep), &options); error != 0) {
    return KernelError(error, "sweeping the map of live objects");
  }
  const uint64_t end = base::Now().nanoseconds();
  const bool is_done = DeleteKeys(object_->maps.forgotten, swept).left == 0;
  base::MutexLock lock(&mutex_);
  // The ids after the swept ones were forgotten meanwhile. A mark that stays would fill the map, so the next sweep
  // tries again.
  if (is_done) forgotten_.erase(forgotten_.begin(), forgotten_.begin() + static_cast<ptrdiff_t>(swept.size()));
  forgotten_since_ = begin;
  sweep_again_at_ = end + std::max((end - begin) * kSweepPause, kShortestSweepPause);
  // Where most objects live, a sweep deletes little, and the map would ask for the next one at once.
  if (object_.ReadCounter(HEAPTAP_COUNTER_LIVE_ENTRIES) < sweep_at_ / 2)
    object_.SetCounter(HEAPTAP_COUNTER_SWEEP_AT, sweep_at_);
  return absl::OkStatus();
}

absl::Status KernelBooks::Forget(const std::set<uint64_t>& process_ids) {
  // The entries of `unnoticed` and the tallies tell a later collector what is left to forget. So losses are deleted
  // before `unnoticed`, and stacks before tallies.
  size_t left = DeleteKeys(object_->maps.losses, LossKeys(process_ids)).left;
  left += DeleteKeys(object_->maps.unnoticed, std::vector<uint64_t>(process_ids.begin(), process_ids.end())).left;
  std::vector<heaptap_tally_key> tallies;
  std::set<uint64_t> with_tallies;
  absl::Status status = ForEachEntry<heaptap_tally_key, heaptap_tally>(
      object_->maps.tallies, [&](const heaptap_tally_key& key, const heaptap_tally&) {
        if (!process_ids.contains(key.process_id)) return;
        tallies.push_back(key);
        with_tallies.insert(key.process_id);
      });
  if (!status.ok()) return status;
  // Every object has a tally, so a process without tallies needs no sweep. One sweep of `live` serves many processes.
  for (const uint64_t process_id : with_tallies) {
    if (!Mark(object_->maps.forgotten, process_id)) {
      // No room for the mark: enough processes for a sweep.
      if (status = Sweep(); !status.ok()) return status;
      Mark(object_->maps.forgotten, process_id);
    }
    base::MutexLock lock(&mutex_);
    if (forgotten_.empty()) forgotten_since_ = base::Now().nanoseconds();
    forgotten_.push_back(process_id);
  }
  std::vector<uint64_t> unmarked;
  std::set_difference(process_ids.begin(), process_ids.end(), with_tallies.begin(), with_tallies.end(),
                      std::back_inserter(unmarked));
  {
    base::MutexLock lock(&mutex_);
    // Processes that were forgotten earlier keep their marks until the sweep. The recording's thread waits for the
    // lock.
    const absl::flat_hash_set<uint64_t> marked(forgotten_.begin(), forgotten_.end());
    std::erase_if(unmarked, [&](uint64_t process_id) { return marked.contains(process_id); });
  }
  areas_.Forget(process_ids);
  left += DeleteKeys(object_->maps.forgotten, unmarked).left;
  left += DeleteKeys(object_->maps.stacks, StackKeys(tallies)).left;
  const Deletion of_tallies = DeleteKeys(object_->maps.tallies, tallies);
  left += of_tallies.left;
  deleted_tallies_ += of_tallies.deleted;
  heaptap_tallies_deleted deleted = {deleted_tallies_};
  // If the program fails, the deleted tallies count as entries until the next call.
  if (RunProgram(program(Program::kTalliesDeleted), deleted) == 0) deleted_tallies_ = 0;
  if (left == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(left, " entries of ended processes stay in the kernel's maps until the recording ends"));
}

void KernelBooks::MarkClosed(uint64_t process_id) { Mark(object_->maps.forgotten, process_id); }

absl::StatusOr<std::set<uint64_t>> KernelBooks::ReadClosed() const {
  std::set<uint64_t> closed;
  absl::Status status = ForEachEntry<uint64_t, uint8_t>(
      object_->maps.forgotten, [&](uint64_t process_id, uint8_t) { closed.insert(process_id); });
  if (!status.ok()) return status;
  return closed;
}

KernelMemory KernelBooks::Memory() const {
  KernelMemory memory;
  uint64_t held = 0;
  bpf_map* map;
  bpf_object__for_each_map(map, object_->obj) {
    if (bpf_map__is_internal(map)) continue;
    held += TellsMemory(map);
    memory.most += MostMemory(map);
  }
  // Linux before 6.4 reports this even for an empty map. Later the two are never equal, because buckets have memory of
  // their own.
  if (TellsMemory(object_->maps.stacks) != MostMemory(object_->maps.stacks)) memory.held = held;
  return memory;
}

}  // namespace heaptap::bpf
