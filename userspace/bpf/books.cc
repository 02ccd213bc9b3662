// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/books.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bpf/heaptap.skel.h"
#include "userspace/bpf/kernel_error.h"

namespace heaptap::bpf {
namespace {

constexpr uint64_t kNever = ~uint64_t{0};

constexpr uint64_t kFirstIdOfPrograms = 2;

// `live` is swept when it is so full: early enough that the sweep ends before the map is full.
constexpr uint64_t kSweepAtPercent = 75;
// After a sweep that left the map half as full or more, none is asked for in this many times its duration.
constexpr uint64_t kSweepPause = 20;
constexpr uint64_t kShortestSweepPause = 10'000'000;  // nanoseconds

// Entries that one system call reads.
constexpr uint32_t kBatch = 4096;

// Of kernel memory, that one node of an unwind table takes.
constexpr uint64_t kNodeBytes = 4096;

struct LossText {
  absl::string_view name;
  absl::string_view description;
};

constexpr LossText kLossTexts[HEAPTAP_LOSS_REASONS] = {
    {"none", "nothing lost"},
    {"live_full", "samples not recorded: map of live objects full, see --map-size live=N"},
    {"tallies_full", "samples not recorded: map of tallies full, see --map-size tallies=N"},
    {"bad_sample", "samples not recorded: impossible size or weight"},
    {"stacks_full", "samples without stack: map of stacks full, see --map-size stacks=N"},
    {"stack_collision", "samples without stack: stack ids collide"},
    {"scratch_busy", "samples without stack: no scratch buffer free"},
    {"missed_free", "frees missed: an address was allocated twice"},
    {"events_full", "events lost: ring buffer full, see --map-size events=BYTES"},
    {"processes_full", "processes not recorded: map of processes full, see --map-size processes=N"},
    {"files_full", "files taken for such without unwind tables: map of files full, see --map-size files=N"},
};

constexpr absl::string_view kEndTexts[HEAPTAP_STACK_ENDS] = {
    "the outermost frame",
    "more frames than are kept",
    "a return address outside of all code",
    "code without unwind information and without frame pointers",
    "stack memory that could not be read",
    "a register that is not known",
    "a caller below its callee",
    "an unwind table not loaded yet and no room for a raw stack, see --map-size raw-stacks=BYTES",
    "the end of the raw stack's copy",
    "an unwind table not loaded yet",
};

uint64_t MonotonicNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// Calls visit(key, value) for each entry of a hash map. Entries that stand still are seen exactly once.
template <typename Key, typename Value, typename Visit>
absl::Status ForEachEntry(const bpf_map* map, Visit visit) {
  const int fd = bpf_map__fd(map);
  uint32_t batch = std::min(kBatch, bpf_map__max_entries(map));
  std::vector<Key> keys(batch);
  std::vector<Value> values(batch);
  uint32_t position = 0;  // the kernel's bucket number; opaque
  bool first = true;
  for (;;) {
    uint32_t count = batch;
    const int error =
        bpf_map_lookup_batch(fd, first ? nullptr : &position, &position, keys.data(), values.data(), &count, nullptr);
    if (error == -ENOSPC) {
      // A bucket holds more than the batch; nothing was read.
      batch *= 2;
      keys.resize(batch);
      values.resize(batch);
      continue;
    }
    if (error != 0 && error != -ENOENT) return KernelError(error, absl::StrCat("reading map ", bpf_map__name(map)));
    for (uint32_t i = 0; i < count; i++) visit(keys[i], values[i]);
    if (error == -ENOENT) return absl::OkStatus();
    first = false;
  }
}

// Keys that are not there are passed over.
template <typename Key>
void DeleteKeys(const bpf_map* map, const std::vector<Key>& keys) {
  for (size_t done = 0; done < keys.size();) {
    auto count = static_cast<uint32_t>(keys.size() - done);
    const int error = bpf_map_delete_batch(bpf_map__fd(map), &keys[done], &count, nullptr);
    if (error != 0 && error != -ENOENT) return;
    done += count + (error != 0 ? 1 : 0);
  }
}

int KeepEvent(void* context, void* data, size_t size) {
  if (size >= sizeof(heaptap_event)) {
    heaptap_event event;
    memcpy(&event, data, sizeof(event));
    static_cast<std::vector<heaptap_event>*>(context)->push_back(event);
  }
  return 0;
}

}  // namespace

absl::string_view LossDescription(uint32_t reason) { return kLossTexts[reason].description; }
absl::string_view LossName(uint32_t reason) { return kLossTexts[reason].name; }
absl::string_view StackEndDescription(uint32_t end) { return kEndTexts[end]; }

absl::StatusOr<std::unique_ptr<Books>> Books::Load(const MapSizes& sizes) {
  std::unique_ptr<Books> books(new Books);
  if (absl::Status status = books->Open(sizes); !status.ok()) return status;
  return books;
}

absl::Status Books::Open(const MapSizes& sizes) {
  if (absl::Status status = CheckPidNamespace(); !status.ok()) return status;
  QuietLibbpf();
  object_ = heaptap_bpf__open();
  if (object_ == nullptr) return KernelError(errno, "opening the eBPF object");
  bpf_map__set_max_entries(object_->maps.processes, sizes.processes);
  bpf_map__set_max_entries(object_->maps.stacks, sizes.stacks);
  bpf_map__set_max_entries(object_->maps.live, sizes.live);
  bpf_map__set_max_entries(object_->maps.tallies, sizes.tallies);
  bpf_map__set_max_entries(object_->maps.losses, sizes.losses);
  bpf_map__set_max_entries(object_->maps.events, sizes.events_bytes);
  bpf_map__set_max_entries(object_->maps.files, sizes.files);
  bpf_map__set_max_entries(object_->maps.names, sizes.names);
  bpf_map__set_max_entries(object_->maps.records, sizes.records);
  object_->rodata->records_capacity = sizes.records;
  bpf_map__set_max_entries(object_->maps.rows, std::max<uint64_t>(sizes.unwind_bytes / kNodeBytes, 1));
  bpf_map__set_max_entries(object_->maps.raw_stacks, sizes.raw_stacks_bytes);
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) return KernelError(errno, "getrandom");
  object_->rodata->stack_seed = seed;

  if (const int error = heaptap_bpf__load(object_); error != 0) {
    // EPERM: not allowed to. EACCES: allowed, but the verifier does not take a program.
    if (error == -EACCES) {
      return absl::FailedPreconditionError(
          absl::StrCat("this kernel's verifier refuses heaptap's eBPF programs: ", FirstLibbpfWarning()));
    }
    return KernelError(error, "loading the eBPF programs");
  }
  SetCounter(HEAPTAP_COUNTER_NEXT_PROCESS_ID, kFirstIdOfPrograms);
  sweep_at_ = uint64_t{sizes.live} * kSweepAtPercent / 100;
  SetCounter(HEAPTAP_COUNTER_SWEEP_AT, sweep_at_);
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < HEAPTAP_LOSS_REASONS; reason++) {
    const heaptap_loss_key key = {0, reason, 0};
    const heaptap_loss none = {};
    if (const int error = bpf_map__update_elem(object_->maps.losses, &key, sizeof(key), &none, sizeof(none), BPF_ANY);
        error != 0) {
      return KernelError(error, "preparing the map of losses");
    }
  }
  ring_ = ring_buffer__new(bpf_map__fd(object_->maps.events), KeepEvent, &events_, nullptr);
  if (ring_ == nullptr) return KernelError(errno, "mapping the ring buffer");
  if (absl::Status status = unwind_.Open(object_); !status.ok()) return status;

  // Only the lifecycle programs attach by themselves; the probes' programs have no target yet.
  const std::pair<bpf_program*, bpf_link**> lifecycle[] = {
      {object_->progs.process_fork, &object_->links.process_fork},
      {object_->progs.process_exec, &object_->links.process_exec},
      {object_->progs.process_exit, &object_->links.process_exit},
      {object_->progs.process_map, &object_->links.process_map},
  };
  for (const auto& [program, link] : lifecycle) {
    *link = bpf_program__attach(program);
    if (*link == nullptr) return KernelError(errno, absl::StrCat("attaching ", bpf_program__name(program)));
  }
  return absl::OkStatus();
}

Books::~Books() {
  if (ring_ != nullptr) ring_buffer__free(ring_);
  if (object_ != nullptr) heaptap_bpf__destroy(object_);
}

absl::StatusOr<uint64_t> Books::Track(pid_t tgid, bool follow, const Triggers& triggers) {
  const uint32_t key = tgid;
  heaptap_process process = {};
  process.id = next_process_id_;
  process.start_time = MonotonicNanoseconds();
  process.flags = follow ? HEAPTAP_PROCESS_FOLLOW : 0;
  process.first_high_water = triggers.first_high_water;
  process.high_water_at = triggers.first_high_water != 0 ? triggers.first_high_water : kNever;
  process.high_water_percent = triggers.high_water_percent;
  process.interval_step = triggers.interval;
  process.interval_at = triggers.interval != 0 ? triggers.interval : kNever;
  if (const int error =
          bpf_map__update_elem(object_->maps.processes, &key, sizeof(key), &process, sizeof(process), BPF_NOEXIST);
      error != 0) {
    return KernelError(error, absl::StrCat("opening books for process ", tgid));
  }
  next_process_id_ += 2;
  return process.id;
}

bool Books::IsCurrent(pid_t tgid, uint64_t process_id) const {
  const uint32_t key = tgid;
  heaptap_process process;
  return bpf_map__lookup_elem(object_->maps.processes, &key, sizeof(key), &process, sizeof(process), 0) == 0 &&
         process.id == process_id;
}

void Books::Untrack(pid_t tgid) {
  const uint32_t key = tgid;
  bpf_map__delete_elem(object_->maps.processes, &key, sizeof(key), 0);
}

int Books::events_fd() const { return ring_buffer__epoll_fd(ring_); }

absl::StatusOr<std::vector<heaptap_event>> Books::TakeEvents() {
  if (sweep_again_at_ != 0 && MonotonicNanoseconds() >= sweep_again_at_) {
    sweep_again_at_ = 0;
    SetCounter(HEAPTAP_COUNTER_SWEEP_AT, sweep_at_);
  }
  if (sweep_again_at_ == 0 && !forgotten_.empty()) {
    if (absl::Status status = Sweep(); !status.ok()) return status;
  }
  if (const int error = ring_buffer__consume(ring_); error < 0) return KernelError(error, "reading the ring buffer");
  return std::exchange(events_, {});
}

uint64_t Books::EventsLost() const {
  const uint32_t which = HEAPTAP_COUNTER_EVENTS_LOST;
  uint64_t lost = 0;
  bpf_map__lookup_elem(object_->maps.counters, &which, sizeof(which), &lost, sizeof(lost), 0);
  return lost;
}

absl::StatusOr<std::map<uint64_t, pid_t>> Books::ReadProcesses() const {
  std::map<uint64_t, pid_t> processes;
  absl::Status status = ForEachEntry<uint32_t, heaptap_process>(
      object_->maps.processes, [&](uint32_t tgid, const heaptap_process& process) {
        if ((process.flags & HEAPTAP_PROCESS_SHARES_PARENT) == 0) processes[process.id] = static_cast<pid_t>(tgid);
      });
  if (!status.ok()) return status;
  return processes;
}

absl::StatusOr<std::map<uint64_t, Books::Unnoticed>> Books::TakeUnnoticed() {
  std::map<uint64_t, Unnoticed> ended;
  absl::Status status = ForEachEntry<uint64_t, heaptap_process>(
      object_->maps.unnoticed, [&](uint64_t process_id, const heaptap_process& process) {
        ended[process_id] = {static_cast<pid_t>(process.parent_tgid), (process.flags & HEAPTAP_PROCESS_EXECED) != 0};
      });
  if (!status.ok()) return status;
  for (const auto& [process_id, process] : ended) {
    bpf_map__delete_elem(object_->maps.unnoticed, &process_id, sizeof(process_id), 0);
  }
  return ended;
}

absl::StatusOr<std::vector<TallyEntry>> Books::ReadTallies(uint64_t process_id) const {
  std::vector<TallyEntry> entries;
  absl::Status status = ForEachEntry<heaptap_tally_key, heaptap_tally>(
      object_->maps.tallies, [&](const heaptap_tally_key& key, const heaptap_tally& tally) {
        if (key.process_id == process_id) entries.push_back({key.stack_id, key.tid, tally});
      });
  if (!status.ok()) return status;
  return entries;
}

absl::StatusOr<LiveTotals> Books::ReadLiveTotals(uint64_t process_id) const {
  LiveTotals totals;
  absl::Status status = ForEachEntry<heaptap_live_key, heaptap_live>(
      object_->maps.live, [&](const heaptap_live_key& key, const heaptap_live& object) {
        if (key.process_id != process_id || object.size == 0 || object.size == HEAPTAP_LIVE_CLAIMED) return;
        totals.objects++;
        totals.bytes += object.size;
        totals.weight += object.weight;
      });
  if (!status.ok()) return status;
  return totals;
}

absl::StatusOr<heaptap_stack> Books::ReadStack(uint64_t stack_id) const {
  heaptap_stack stack;
  if (stack_id == HEAPTAP_NO_STACK) return absl::NotFoundError("sample without a stack");
  if (const int error =
          bpf_map__lookup_elem(object_->maps.stacks, &stack_id, sizeof(stack_id), &stack, sizeof(stack), 0);
      error != 0) {
    return KernelError(error, "reading a stack");
  }
  stack.count = std::min<uint32_t>(stack.count, HEAPTAP_MAX_FRAMES);
  return stack;
}

absl::StatusOr<ThreadName> Books::ReadThreadName(uint64_t process_id, uint32_t tid) const {
  const heaptap_thread_key key = {process_id, tid, 0};
  heaptap_thread_name value;
  if (const int error = bpf_map__lookup_elem(object_->maps.names, &key, sizeof(key), &value, sizeof(value), 0);
      error != 0) {
    return error == -ENOENT ? absl::NotFoundError("no name is known")
                            : KernelError(error, "reading the name of a thread");
  }
  return ThreadName{std::string(value.name, strnlen(value.name, sizeof(value.name))), value.given != 0};
}

absl::StatusOr<std::vector<heaptap_record>> Books::ReadRecords(uint64_t process_id) const {
  std::vector<heaptap_record> records;
  absl::Status status =
      ForEachEntry<uint32_t, heaptap_record>(object_->maps.records, [&](uint32_t, const heaptap_record& record) {
        if (record.number != 0 && record.process_id == process_id) records.push_back(record);
      });
  if (!status.ok()) return status;
  std::sort(records.begin(), records.end(),
            [](const heaptap_record& a, const heaptap_record& b) { return a.number < b.number; });
  return records;
}

Losses Books::ReadLosses(uint64_t process_id) const {
  Losses losses = {};
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < HEAPTAP_LOSS_REASONS; reason++) {
    const heaptap_loss_key key = {process_id, reason, 0};
    bpf_map__lookup_elem(object_->maps.losses, &key, sizeof(key), &losses[reason], sizeof(losses[reason]), 0);
  }
  return losses;
}

absl::Status Books::Sweep() {
  const uint64_t begin = MonotonicNanoseconds();
  bpf_test_run_opts options = {};
  options.sz = sizeof(options);
  if (const int error = bpf_prog_test_run_opts(bpf_program__fd(object_->progs.sweep), &options); error != 0) {
    return KernelError(error, "sweeping the map of live objects");
  }
  const uint64_t end = MonotonicNanoseconds();
  sweep_again_at_ = end + std::max((end - begin) * kSweepPause, kShortestSweepPause);
  DeleteKeys(object_->maps.forgotten, forgotten_);
  forgotten_.clear();
  // Where most objects live there is little to sweep, and the map is as full again at once.
  if (ReadCounter(HEAPTAP_COUNTER_LIVE_ENTRIES) < sweep_at_ / 2) SetCounter(HEAPTAP_COUNTER_SWEEP_AT, sweep_at_);
  return absl::OkStatus();
}

void Books::SetCounter(uint32_t which, uint64_t value) {
  bpf_map__update_elem(object_->maps.counters, &which, sizeof(which), &value, sizeof(value), BPF_ANY);
}

uint64_t Books::ReadCounter(uint32_t which) const {
  uint64_t value = 0;
  bpf_map__lookup_elem(object_->maps.counters, &which, sizeof(which), &value, sizeof(value), 0);
  return value;
}

absl::Status Books::Forget(const std::set<uint64_t>& process_ids) {
  std::vector<heaptap_tally_key> tallies;
  std::set<uint64_t> with_tallies;
  absl::Status status = ForEachEntry<heaptap_tally_key, heaptap_tally>(
      object_->maps.tallies, [&](const heaptap_tally_key& key, const heaptap_tally&) {
        if (!process_ids.contains(key.process_id)) return;
        tallies.push_back(key);
        with_tallies.insert(key.process_id);
      });
  if (!status.ok()) return status;
  // Every object has a tally. `live` is large, so objects of several processes are swept together.
  for (const uint64_t process_id : with_tallies) {
    const uint8_t mark = 1;
    if (bpf_map__update_elem(object_->maps.forgotten, &process_id, sizeof(process_id), &mark, sizeof(mark), BPF_ANY) !=
        0) {
      // No room: they are many enough for a sweep.
      if (status = Sweep(); !status.ok()) return status;
      bpf_map__update_elem(object_->maps.forgotten, &process_id, sizeof(process_id), &mark, sizeof(mark), BPF_ANY);
    }
    forgotten_.push_back(process_id);
  }
  // A stack belongs to one process only: the id's hash has the process id in it.
  std::vector<uint64_t> stacks;
  for (const heaptap_tally_key& key : tallies) {
    if (key.stack_id != HEAPTAP_NO_STACK) stacks.push_back(key.stack_id);
  }
  std::sort(stacks.begin(), stacks.end());
  stacks.erase(std::unique(stacks.begin(), stacks.end()), stacks.end());

  DeleteKeys(object_->maps.tallies, tallies);
  DeleteKeys(object_->maps.stacks, stacks);
  std::vector<heaptap_loss_key> losses;
  for (const uint64_t process_id : process_ids) {
    if (process_id == 0) continue;
    for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < HEAPTAP_LOSS_REASONS; reason++) {
      losses.push_back({process_id, reason, 0});
    }
  }
  DeleteKeys(object_->maps.losses, losses);
  return absl::OkStatus();
}

const bpf_program* Books::alloc_program() const { return object_->progs.probe_alloc; }
const bpf_program* Books::free_program() const { return object_->progs.probe_free; }
const bpf_program* Books::start_program() const { return object_->progs.probe_start; }
const bpf_program* Books::dump_program() const { return object_->progs.probe_dump; }
const bpf_program* Books::thread_name_program() const { return object_->progs.probe_thread_name; }

}  // namespace heaptap::bpf
