// SPDX-License-Identifier: Apache-2.0
//
// The kernel's side of unwinding: which files' tables are in the kernel, and the stacks that wait for one.
//
// Lives as long as the Books it belongs to. Not thread safe. A thread of its own empties the ring buffer of raw stacks:
// the collector may be busy reading a table while thousands of them come.
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

// A raw stack, taken out of the ring.
struct RawStack {
  heaptap_raw_stack header;
  std::vector<uint8_t> memory;  // of header.memory_bytes
};

class UnwindMaps {
 public:
  // Of raw stacks that wait for TakeRawStacks. What is more stays in the ring buffer.
  static constexpr uint64_t kMaxTakenBytes = 512 << 20;

  // Unavailable: the ring buffer cannot be mapped.
  // `identify` and `invalidate_rules`: descriptors of these programs.
  absl::Status Open(heaptap_bpf* object, int identify, int invalidate_rules);
  UnwindMaps() = default;
  ~UnwindMaps();
  UnwindMaps(const UnwindMaps&) = delete;
  UnwindMaps& operator=(const UnwindMaps&) = delete;

  // The key under which programs know the file open at `fd` once it is mapped. NotFound: it cannot be mapped.
  absl::StatusOr<heaptap_file_key> Identify(int fd) const;
  // The address, in the kernel, of the inode that is mapped when the file open at `fd` is: not 0, and no other file's
  // while this one is in use. On overlayfs that is the inode beneath, which several mounts may show, each as a file of
  // its own; two subvolumes of one btrfs can have two inodes with one key. NotFound: it cannot be mapped.
  absl::StatusOr<uint64_t> FindInode(int fd) const;

  // Puts a table's nodes into the kernel under a number that no other had. ResourceExhausted: no room.
  absl::Status AddTable(uint32_t table, absl::Span<const heaptap_rows> nodes);
  void RemoveTable(uint32_t table, uint32_t nodes);

  absl::Status SetFile(const heaptap_file_key& key, const heaptap_file& file);
  // The file is unknown again: who meets it asks for its table.
  void RemoveFile(const heaptap_file_key& key);
  // Nothing if the kernel does not know it.
  std::optional<heaptap_file> ReadFile(const heaptap_file_key& key) const;

  // Forgets all files and tables: those that another collector had entered. Who uses them asks for them again. Returns
  // the first number that no table had.
  uint32_t Clear();

  // The executable mappings of a process have changed.
  void Renew(pid_t tgid);

  // Becomes readable when there are raw stacks.
  int raw_stacks_fd() const { return taken_event_.get(); }
  // All that were sent before the call, and perhaps some more; unless they are more than kMaxTakenBytes.
  std::vector<RawStack> TakeRawStacks();
  // Replaces a stack that is in the books.
  void ReplaceStack(uint64_t stack_id, const heaptap_stack& stack);

 private:
  absl::StatusOr<heaptap_identify> Ask(int fd) const;
  static int Keep(void* self, void* data, size_t size);
  // Moves what is in the ring to `taken_`: `most` bytes of the ring and perhaps one stack more.
  void Empty(uint64_t most) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(int ring_fd);

  heaptap_bpf* object_ = nullptr;
  int identify_ = -1;
  int invalidate_rules_ = -1;
  elf::FileDescriptor taken_event_;  // readable while there is something in `taken_`
  elf::FileDescriptor end_event_;    // readable: the thread shall end
  std::thread thread_;
  absl::Mutex mutex_;
  ring_buffer* ring_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<RawStack> taken_ ABSL_GUARDED_BY(mutex_);
  uint64_t taken_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_left_ ABSL_GUARDED_BY(mutex_) = 0;  // of the ring, that Empty may still take
  std::atomic<int> takers_ = 0;  // how many wait in TakeRawStacks: the thread leaves the lock to them
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_UNWIND_MAPS_H_
