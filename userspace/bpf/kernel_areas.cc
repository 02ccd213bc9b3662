// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/kernel_areas.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bpf/commands.h"
#include "bpf/heaptap.skel.h"
#include "userspace/base/messages.h"
#include "userspace/base/threads.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/map_access.h"

namespace heaptap::bpf {
namespace {

// Areas that are ready at any time. To enter one in `areas` takes the kernel a grace period, some ten milliseconds.
constexpr size_t kSpares = 3;

// No process has allocated more bytes; sums of as many as there are counts do not overflow.
constexpr uint64_t kMost = uint64_t{1} << 47;

uint64_t Bounded(uint64_t number) { return number <= kMost ? number : 0; }

// Acquire: what was counted before is read after.
uint64_t Load(const uint64_t& number) { return __atomic_load_n(&number, __ATOMIC_ACQUIRE); }

heaptap_count CountOf(uint64_t objects, uint64_t bytes) {
  return {.objects = objects,
          .bytes = bytes,
          .weight = bytes,
          .weighted_objects = objects << HEAPTAP_OBJECT_FRACTION_BITS,
          .variance = 0};
}

}  // namespace

heaptap_tally TallyOf(const heaptap_counts& counts) {
  // The frees first: a block that is allocated and freed meanwhile then counts as live, and not as freed twice.
  const uint64_t freed_objects = Bounded(Load(counts.freed_objects)) + Bounded(Load(counts.others_objects));
  const uint64_t freed_bytes = Bounded(Load(counts.freed_bytes)) + Bounded(Load(counts.others_bytes));
  const uint64_t objects = Bounded(Load(counts.objects));
  const uint64_t bytes = Bounded(Load(counts.bytes));
  return {.allocated = CountOf(objects, bytes),
          .freed = CountOf(std::min(freed_objects, objects), std::min(freed_bytes, bytes))};
}

void KernelAreas::Open(const heaptap_bpf* skeleton, int give_area) {
  skeleton_ = skeleton;
  give_area_ = give_area;
  absl::MutexLock lock(&mutex_);
  // Process entries without an area have slot 0.
  for (uint32_t slot = HEAPTAP_AREA_SLOTS - 1; slot > 0; slot--) free_slots_.push_back(slot);
}

KernelAreas::~KernelAreas() {
  {
    absl::MutexLock lock(&mutex_);
    shall_end_ = true;
  }
  if (thread_.joinable()) thread_.join();
  absl::MutexLock lock(&mutex_);
  for (const auto& areas : {&spares_, &old_}) {
    for (const Area& area : *areas) munmap(area.memory, HEAPTAP_AREA_BYTES);
  }
  for (const auto& [process_id, areas] : given_) {
    for (const Area& area : areas) munmap(area.memory, HEAPTAP_AREA_BYTES);
  }
}

absl::Status KernelAreas::Prepare() {
  if (thread_.joinable()) return absl::OkStatus();
  absl::StatusOr<std::thread> thread = base::StartThread([this] { Run(); });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  return absl::OkStatus();
}

absl::StatusOr<KernelAreas::Area> KernelAreas::Make(uint32_t slot) const {
  bpf_map_create_opts options = {};
  options.sz = sizeof(options);
  options.map_flags = BPF_F_MMAPABLE;
  base::FileDescriptor map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "heaptap_area", sizeof(uint32_t), HEAPTAP_AREA_PAGE_BYTES,
                                          HEAPTAP_AREA_PAGES, &options));
  if (!map.valid()) return KernelError(errno, "making an area");
  void* const memory = mmap(nullptr, HEAPTAP_AREA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, map.get(), 0);
  if (memory == MAP_FAILED) return KernelError(errno, "mapping an area");
  static_cast<heaptap_area_head*>(memory)->collector_pid = static_cast<uint32_t>(getpid());
  const int fd = map.get();
  if (const int error = bpf_map__update_elem(skeleton_->maps.areas, &slot, sizeof(slot), &fd, sizeof(fd), BPF_ANY);
      error != 0) {
    munmap(memory, HEAPTAP_AREA_BYTES);
    return KernelError(error, "entering an area");
  }
  return Area{slot, std::move(map), static_cast<char*>(memory)};
}

void KernelAreas::Release(const Area& area) {
  munmap(area.memory, HEAPTAP_AREA_BYTES);
  bpf_map__delete_elem(skeleton_->maps.areas, &area.slot, sizeof(area.slot), 0);
}

bool KernelAreas::HasWork() const {
  return shall_end_ || !old_.empty() || (!has_failed_ && spares_.size() < kSpares && !free_slots_.empty());
}

void KernelAreas::Run() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(this, &KernelAreas::HasWork));
    if (shall_end_) return;
    if (!old_.empty()) {
      const Area area = std::move(old_.back());
      old_.pop_back();
      mutex_.Unlock();
      Release(area);
      mutex_.Lock();
      free_slots_.push_back(area.slot);
      continue;
    }
    const uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    mutex_.Unlock();
    absl::StatusOr<Area> made = Make(slot);
    mutex_.Lock();
    if (made.ok()) {
      spares_.push_back(*std::move(made));
      continue;
    }
    base::Say(absl::StrCat(made.status().message(), "; every allocation is reported instead, which takes longer"));
    free_slots_.push_back(slot);
    has_failed_ = true;
  }
}

absl::StatusOr<int> KernelAreas::Give(pid_t tgid, uint64_t process_id, uint32_t number) {
  absl::MutexLock lock(&mutex_);
  std::vector<Area>& areas = given_[process_id];
  if (areas.size() == number + size_t{1}) return areas.back().map.get();
  if (areas.size() != number) return absl::NotFoundError("the process has another number of areas");
  if (number >= HEAPTAP_AREAS) return absl::ResourceExhaustedError("the process has as many areas as it may have");
  if (spares_.empty()) return absl::UnavailableError("no area is ready");
  if (number == 0) {
    heaptap_give_area argument = {.process_id = process_id,
                                  .tgid = static_cast<uint32_t>(tgid),
                                  .slot = spares_.back().slot,
                                  .done = 0,
                                  .reserved = 0};
    if (const int error = RunProgram(give_area_, argument); error != 0) return KernelError(error, "giving an area");
    if (argument.done == 0) return absl::NotFoundError(absl::StrCat("process ", tgid, " has ended"));
  }
  areas.push_back(std::move(spares_.back()));
  spares_.pop_back();
  return areas.back().map.get();
}

void KernelAreas::VisitCounts(absl::FunctionRef<void(uint64_t, const TallyEntry&)> visit) const {
  constexpr size_t kCounts = HEAPTAP_AREA_BYTES / sizeof(heaptap_counts);
  constexpr size_t kBeforeCounts = (1 + HEAPTAP_MAILBOXES) * HEAPTAP_AREA_PAGE_BYTES / sizeof(heaptap_counts);
  absl::ReaderMutexLock lock(&mutex_);
  for (const auto& [process_id, areas] : given_) {
    for (size_t number = 0; number < areas.size(); number++) {
      const auto* counts = reinterpret_cast<const heaptap_counts*>(areas[number].memory);
      for (size_t i = number == 0 ? kBeforeCounts : 0; i < kCounts; i++) {
        // Acquire: the thread was written before the stack.
        const uint64_t stack_id = Load(counts[i].stack_id);
        if (stack_id == 0) continue;
        visit(process_id, {stack_id, __atomic_load_n(&counts[i].tid, __ATOMIC_RELAXED), TallyOf(counts[i])});
      }
    }
  }
}

void KernelAreas::Forget(const std::set<uint64_t>& process_ids) {
  absl::MutexLock lock(&mutex_);
  for (const uint64_t process_id : process_ids) {
    const auto found = given_.find(process_id);
    if (found == given_.end()) continue;
    for (Area& area : found->second) old_.push_back(std::move(area));
    given_.erase(found);
  }
}

}  // namespace heaptap::bpf
