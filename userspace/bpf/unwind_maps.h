// SPDX-License-Identifier: Apache-2.0
//
// The maps of bpf/unwind.h: the files whose tables are in the kernel, and the raw stacks.
//
// Part of a Books, and like it an interface. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_BPF_UNWIND_MAPS_H_
#define HEAPTAP_USERSPACE_BPF_UNWIND_MAPS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "bpf/books.h"
#include "bpf/unwind.h"
#include "userspace/unwind/stack_copy.h"

namespace heaptap::bpf {

// A raw stack from the ring buffer.
struct RawStack {
  heaptap_raw_stack header;
  unwind::StackCopy memory;  // header.memory_bytes bytes
};

class UnwindMaps {
 public:
  virtual ~UnwindMaps() = default;
  UnwindMaps(const UnwindMaps&) = delete;
  UnwindMaps& operator=(const UnwindMaps&) = delete;

  // A number that no table has had before, not even a table of an earlier collector.
  virtual uint32_t NewTable() = 0;
  // Loads these nodes of a table, from number `first` on: all of them, or none on error. No table had this number
  // before. ResourceExhausted: no room.
  virtual absl::Status AddNodes(uint32_t table, uint32_t first, absl::Span<const heaptap_rows> nodes) = 0;
  // Removes the first `nodes` nodes.
  virtual void RemoveTable(uint32_t table, uint32_t nodes) = 0;

  virtual absl::Status SetFile(const heaptap_file_key& key, const heaptap_file& file) = 0;
  // Makes the file unknown again: the next program that meets it asks for its table.
  virtual void RemoveFile(const heaptap_file_key& key) = 0;
  // Nothing: the file is unknown.
  virtual std::optional<heaptap_file> ReadFile(const heaptap_file_key& key) const = 0;

  // The files and tables that an earlier collector has left. For each table, by its number: the number of its last node
  // plus 1.
  virtual std::vector<heaptap_file_key> FileKeys() const = 0;
  virtual std::map<uint32_t, uint32_t> CountNodes() const = 0;

  // Makes cached rules of a process invalid, because its executable mappings have changed. False: the kernel has no
  // memory to do it; until a later call does it, stacks through the new mappings may be wrong.
  virtual bool InvalidateRules(pid_t tgid) = 0;

  // Becomes readable when there are raw stacks.
  virtual int raw_stacks_fd() const = 0;
  // The raw stacks that were sent before the call, up to a bound, and perhaps some newer ones.
  virtual std::vector<RawStack> TakeRawStacks() = 0;
  // Replaces a stack in the books.
  virtual void ReplaceStack(uint64_t stack_id, const heaptap_stack& stack) = 0;

 protected:
  UnwindMaps() = default;
};

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_UNWIND_MAPS_H_
