// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/kernel_unwind_maps.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/time.h"
#include "bpf/commands.h"
#include "bpf/heaptap.skel.h"
#include "userspace/base/clock.h"
#include "userspace/base/mutex.h"
#include "userspace/base/threads.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/map_access.h"

namespace heaptap::bpf {
namespace {

// How long the thread waits for TakeRawStacks before it checks whether it must end.
constexpr absl::Duration kRoomTimeout = absl::Milliseconds(100);

// After a failed poll(2).
constexpr absl::Duration kPollPause = absl::Milliseconds(10);

// Bytes that the thread takes out of the ring before it releases the lock: less than a millisecond of work. Processes
// may fill the ring as fast as it is emptied.
constexpr uint64_t kPieceBytes = 1 << 20;

// Upper bound of the entries of these maps.
constexpr size_t kMostKeys = 1 << 24;

// The memory of nodes comes from a per-CPU reserve of the kernel, which refills it in the background.
constexpr int kMemoryTries = 1000;

template <typename Key>
std::vector<Key> Keys(int map) {
  std::vector<Key> keys;
  Key key;
  for (const Key* last = nullptr; bpf_map_get_next_key(map, last, &key) == 0; last = &keys.back()) {
    // If an entry is deleted meanwhile, the kernel starts again from the first one.
    if (keys.size() >= kMostKeys) break;
    keys.push_back(key);
  }
  return keys;
}

std::vector<heaptap_rows_key> NodeKeys(uint32_t table, uint32_t first, uint32_t count) {
  std::vector<heaptap_rows_key> keys;
  keys.reserve(count);
  for (uint32_t node = first; node < first + count; node++) keys.push_back({table, node});
  return keys;
}

}  // namespace

int KernelUnwindMaps::Keep(void* self, void* data, size_t size) {
  auto* maps = static_cast<KernelUnwindMaps*>(self);
  maps->mutex_.AssertHeld();
  if (size < sizeof(heaptap_raw_stack)) return 0;
  RawStack& raw = maps->taken_.emplace_back();
  memcpy(&raw.header, data, sizeof(raw.header));
  const size_t bytes = std::min<size_t>(raw.header.memory_bytes, size - sizeof(raw.header));
  const uint8_t* memory = static_cast<const uint8_t*>(data) + sizeof(raw.header);
  const uint64_t made = maps->copier_.bytes_made();
  raw.memory = maps->copier_.Copy(raw.header.process_id, raw.header.memory_begin, {memory, bytes});
  maps->taken_bytes_ += maps->copier_.bytes_made() - made + sizeof(RawStack) +
                        raw.memory.parts().size() * sizeof(unwind::StackCopy::Part);
  maps->bytes_left_ -= std::min<uint64_t>(maps->bytes_left_, size);
  return maps->bytes_left_ != 0 && maps->taken_bytes_ < kMaxTakenBytes ? 0 : -1;
}

absl::Status KernelUnwindMaps::Open(heaptap_bpf* object, int invalidate_rules) {
  object_ = object;
  invalidate_rules_ = invalidate_rules;
  taken_event_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  end_event_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!taken_event_.valid() || !end_event_.valid()) return KernelError(errno, "eventfd");
  base::MutexLock lock(&mutex_);
  ring_ = ring_buffer__new(bpf_map__fd(object_->maps.raw_stacks), Keep, this, nullptr);
  if (ring_ == nullptr) return KernelError(errno, "mapping the ring buffer of raw stacks");
  absl::StatusOr<std::thread> thread = base::StartThread([this, fd = ring_buffer__epoll_fd(ring_)] { Run(fd); });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  return absl::OkStatus();
}

KernelUnwindMaps::~KernelUnwindMaps() {
  if (thread_.joinable()) {
    eventfd_write(end_event_.get(), 1);
    thread_.join();
  }
  base::MutexLock lock(&mutex_);
  if (ring_ != nullptr) ring_buffer__free(ring_);
}

void KernelUnwindMaps::Empty(uint64_t most) {
  if (taken_bytes_ >= kMaxTakenBytes) return;
  bytes_left_ = most;
  ring_buffer__consume(ring_);
}

void KernelUnwindMaps::Run(int ring_fd) {
  pollfd polled[] = {{ring_fd, POLLIN, 0}, {end_event_.get(), POLLIN, 0}};
  for (;;) {
    if (poll(polled, std::size(polled), -1) < 0) {
      // The kernel has no memory for a moment.
      if (errno != EINTR) base::Sleep(kPollPause);
      continue;
    }
    if (polled[1].revents != 0) return;
    base::MutexLock lock(&mutex_);
    Empty(kPieceBytes);
    if (taken_.empty()) continue;
    eventfd_write(taken_event_.get(), 1);
    // The ring would stay readable while it cannot be emptied.
    const auto goes_on = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return takers_.load(std::memory_order_relaxed) == 0 && taken_bytes_ < kMaxTakenBytes;
    };
    base::AwaitUntil(mutex_, absl::Condition(&goes_on), base::Now() + kRoomTimeout);
  }
}

std::vector<RawStack> KernelUnwindMaps::TakeRawStacks() {
  takers_.fetch_add(1, std::memory_order_relaxed);
  base::MutexLock lock(&mutex_);
  takers_.fetch_sub(1, std::memory_order_relaxed);
  // At most one full ring: more cannot have been sent before this call.
  Empty(bpf_map__max_entries(object_->maps.raw_stacks));
  eventfd_t count;
  eventfd_read(taken_event_.get(), &count);
  taken_bytes_ = 0;
  return std::exchange(taken_, {});
}

uint32_t KernelUnwindMaps::NewTable() {
  const uint32_t which = HEAPTAP_COUNTER_TABLES;
  uint64_t tables = 0;
  LookUp(object_->maps.counters, which, tables);
  tables++;
  bpf_map__update_elem(object_->maps.counters, &which, sizeof(which), &tables, sizeof(tables), BPF_ANY);
  return static_cast<uint32_t>(tables);
}

absl::Status KernelUnwindMaps::AddNodes(uint32_t table, uint32_t first, absl::Span<const heaptap_rows> nodes) {
  const std::vector<heaptap_rows_key> keys = NodeKeys(table, first, nodes.size());
  int error = 0;
  uint32_t done = 0;
  for (int tries = 0; done < keys.size() && tries < kMemoryTries; tries++) {
    auto count = static_cast<uint32_t>(keys.size() - done);
    error = bpf_map_update_batch(bpf_map__fd(object_->maps.rows), &keys[done], &nodes[done], &count, nullptr);
    done += count;
    if (error != 0 && error != -ENOMEM) break;
  }
  if (done == keys.size()) return absl::OkStatus();
  RemoveNodes(NodeKeys(table, first, done));
  if (error == -E2BIG || error == -ENOMEM) return absl::ResourceExhaustedError("no room for an unwind table");
  return KernelError(error, "loading an unwind table");
}

void KernelUnwindMaps::RemoveTable(uint32_t table, uint32_t nodes) { RemoveNodes(NodeKeys(table, 0, nodes)); }

void KernelUnwindMaps::RemoveNodes(const std::vector<heaptap_rows_key>& keys) {
  for (size_t done = 0; done < keys.size();) {
    auto count = static_cast<uint32_t>(keys.size() - done);
    const int error = bpf_map_delete_batch(bpf_map__fd(object_->maps.rows), &keys[done], &count, nullptr);
    if (error != 0 && error != -ENOENT) return;
    done += count + (error != 0 ? 1 : 0);
  }
}

std::vector<heaptap_file_key> KernelUnwindMaps::FileKeys() const {
  return Keys<heaptap_file_key>(bpf_map__fd(object_->maps.files));
}

std::map<uint32_t, uint32_t> KernelUnwindMaps::CountNodes() const {
  std::map<uint32_t, uint32_t> counts;
  for (const heaptap_rows_key& key : Keys<heaptap_rows_key>(bpf_map__fd(object_->maps.rows))) {
    uint32_t& count = counts[key.table];
    count = std::max(count, key.node + 1);
  }
  return counts;
}

absl::Status KernelUnwindMaps::SetFile(const heaptap_file_key& key, const heaptap_file& file) {
  const int error = bpf_map__update_elem(object_->maps.files, &key, sizeof(key), &file, sizeof(file), BPF_ANY);
  return error == 0 ? absl::OkStatus() : KernelError(error, "entering a file's unwind table");
}

void KernelUnwindMaps::RemoveFile(const heaptap_file_key& key) {
  bpf_map__delete_elem(object_->maps.files, &key, sizeof(key), 0);
}

std::optional<heaptap_file> KernelUnwindMaps::ReadFile(const heaptap_file_key& key) const {
  heaptap_file file;
  if (LookUp(object_->maps.files, key, file) != 0) return std::nullopt;
  return file;
}

bool KernelUnwindMaps::InvalidateRules(pid_t tgid) {
  heaptap_invalidate_rules argument = {static_cast<uint32_t>(tgid), 0};
  return RunProgram(invalidate_rules_, argument) == 0;
}

void KernelUnwindMaps::ReplaceStack(uint64_t stack_id, const heaptap_stack& stack) {
  // BPF_EXIST: the stack is gone if the books of its process were closed.
  bpf_map__update_elem(object_->maps.stacks, &stack_id, sizeof(stack_id), &stack, sizeof(stack), BPF_EXIST);
}

}  // namespace heaptap::bpf
