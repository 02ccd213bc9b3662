// SPDX-License-Identifier: Apache-2.0
//
// The kernel's maps of files, tables and raw stacks. Part of KernelBooks.
//
// Not thread-safe. A separate thread empties the ring buffer of raw stacks, because thousands may arrive while the
// collector reads a table.
#ifndef HEAPTAP_USERSPACE_BPF_KERNEL_UNWIND_MAPS_H_
#define HEAPTAP_USERSPACE_BPF_KERNEL_UNWIND_MAPS_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/mutex.h"
#include "userspace/bpf/unwind_maps.h"
#include "userspace/unwind/stack_copy.h"

struct heaptap_bpf;
struct ring_buffer;

namespace heaptap::bpf {

class KernelUnwindMaps final : public UnwindMaps {
 public:
  // Upper bound of the bytes that were added for raw stacks that wait for TakeRawStacks. Further raw stacks stay in the
  // ring buffer.
  static constexpr uint64_t kMaxTakenBytes = 512 << 20;

  KernelUnwindMaps() = default;
  ~KernelUnwindMaps() override;
  // Unavailable: the ring buffer cannot be mapped.
  // `invalidate_rules`: descriptor of this program.
  absl::Status Open(heaptap_bpf* object, int invalidate_rules);

  uint32_t NewTable() override;
  absl::Status AddNodes(uint32_t table, uint32_t first, absl::Span<const heaptap_rows> nodes) override;
  void RemoveTable(uint32_t table, uint32_t nodes) override;
  absl::Status SetFile(const heaptap_file_key& key, const heaptap_file& file) override;
  void RemoveFile(const heaptap_file_key& key) override;
  std::optional<heaptap_file> ReadFile(const heaptap_file_key& key) const override;
  std::vector<heaptap_file_key> FileKeys() const override;
  std::map<uint32_t, uint32_t> CountNodes() const override;
  bool InvalidateRules(pid_t tgid) override;
  int raw_stacks_fd() const override { return taken_event_.get(); }
  std::vector<RawStack> TakeRawStacks() override;
  void ReplaceStack(uint64_t stack_id, const heaptap_stack& stack) override;

 private:
  static int Keep(void* self, void* data, size_t size);
  // Moves raw stacks from the ring to `taken_`: at most `most` bytes of the ring, and perhaps one more stack.
  void Empty(uint64_t most) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(int ring_fd);
  void RemoveNodes(const std::vector<heaptap_rows_key>& keys);

  heaptap_bpf* object_ = nullptr;
  int invalidate_rules_ = -1;
  base::FileDescriptor taken_event_;  // readable while `taken_` is not empty
  base::FileDescriptor end_event_;    // readable: the thread must end
  std::thread thread_;
  base::Mutex mutex_;
  ring_buffer* ring_ ABSL_GUARDED_BY(mutex_) = nullptr;
  unwind::StackCopier copier_ ABSL_GUARDED_BY(mutex_);
  std::vector<RawStack> taken_ ABSL_GUARDED_BY(mutex_);
  uint64_t taken_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_left_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of the ring that Empty may still take
  std::atomic<int> takers_ = 0;  // callers that wait in TakeRawStacks; the thread leaves the lock to them
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_KERNEL_UNWIND_MAPS_H_
