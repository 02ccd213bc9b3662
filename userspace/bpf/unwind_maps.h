// SPDX-License-Identifier: Apache-2.0
//
// The maps of bpf/unwind.h: the files whose tables are in the kernel, and the raw stacks.
//
// Part of a Books. Not thread-safe. A separate thread empties the ring buffer of raw stacks, because thousands may
// arrive while the collector reads a table.
#ifndef HEAPTAP_USERSPACE_BPF_UNWIND_MAPS_H_
#define HEAPTAP_USERSPACE_BPF_UNWIND_MAPS_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "bpf/books.h"
#include "bpf/commands.h"
#include "bpf/unwind.h"
#include "userspace/elf/file_descriptor.h"

struct heaptap_bpf;
struct ring_buffer;

namespace heaptap::bpf {

// A raw stack from the ring buffer.
struct RawStack {
  heaptap_raw_stack header;
  std::vector<uint8_t> memory;  // header.memory_bytes bytes
};

class UnwindMaps {
 public:
  // Bytes of raw stacks that wait for TakeRawStacks. Further raw stacks stay in the ring buffer.
  static constexpr uint64_t kMaxTakenBytes = 512 << 20;

  // Unavailable: the ring buffer cannot be mapped.
  // `identify` and `invalidate_rules`: descriptors of these programs.
  absl::Status Open(heaptap_bpf* object, int identify, int invalidate_rules);
  UnwindMaps() = default;
  ~UnwindMaps();
  UnwindMaps(const UnwindMaps&) = delete;
  UnwindMaps& operator=(const UnwindMaps&) = delete;

  // The key of the file open at `fd` in the maps. NotFound: the file cannot be mapped.
  absl::StatusOr<heaptap_file_key> Identify(int fd) const;
  // The kernel's address of the inode behind a mapping of the file open at `fd`: not 0, and unique while the file is in
  // use. On overlayfs it is the inode beneath, which several mounts may show as different files. Two subvolumes of a
  // btrfs can have two inodes with one key. NotFound: the file cannot be mapped.
  absl::StatusOr<uint64_t> FindInode(int fd) const;

  // Loads the nodes of a table under a number that no table had before. ResourceExhausted: no room.
  absl::Status AddTable(uint32_t table, absl::Span<const heaptap_rows> nodes);
  void RemoveTable(uint32_t table, uint32_t nodes);

  absl::Status SetFile(const heaptap_file_key& key, const heaptap_file& file);
  // Makes the file unknown again: the next program that meets it asks for its table.
  void RemoveFile(const heaptap_file_key& key);
  // Nothing: the file is unknown.
  std::optional<heaptap_file> ReadFile(const heaptap_file_key& key) const;

  // Removes all files and tables, which an earlier collector had entered; programs ask for the tables again. Returns
  // the first number that no table had.
  uint32_t Clear();

  // Makes cached rules of a process invalid, because its executable mappings have changed.
  void InvalidateRules(pid_t tgid);

  // Becomes readable when there are raw stacks.
  int raw_stacks_fd() const { return taken_event_.get(); }
  // The raw stacks that were sent before the call, up to kMaxTakenBytes, and perhaps some newer ones.
  std::vector<RawStack> TakeRawStacks();
  // Replaces a stack in the books.
  void ReplaceStack(uint64_t stack_id, const heaptap_stack& stack);

 private:
  absl::StatusOr<heaptap_identify> Ask(int fd) const;
  static int Keep(void* self, void* data, size_t size);
  // Moves raw stacks from the ring to `taken_`: at most `most` bytes of the ring, and perhaps one stack more.
  void Empty(uint64_t most) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(int ring_fd);

  heaptap_bpf* object_ = nullptr;
  int identify_ = -1;
  int invalidate_rules_ = -1;
  elf::FileDescriptor taken_event_;  // readable while `taken_` is not empty
  elf::FileDescriptor end_event_;    // readable: the thread must end
  std::thread thread_;
  absl::Mutex mutex_;
  ring_buffer* ring_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<RawStack> taken_ ABSL_GUARDED_BY(mutex_);
  uint64_t taken_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_left_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of the ring that Empty may still take
  std::atomic<int> takers_ = 0;  // callers that wait in TakeRawStacks; the thread leaves the lock to them
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_UNWIND_MAPS_H_
