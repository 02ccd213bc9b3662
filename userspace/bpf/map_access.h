// SPDX-License-Identifier: Apache-2.0
//
// Many entries of a map in one system call, and programs as functions.
#ifndef HEAPTAP_USERSPACE_BPF_MAP_ACCESS_H_
#define HEAPTAP_USERSPACE_BPF_MAP_ACCESS_H_

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "userspace/bpf/kernel_error.h"

namespace heaptap::bpf {

// Entries that one system call reads.
inline constexpr uint32_t kBatch = 4096;

// Calls visit(key, value) for each entry of a hash map. Entries that are not added or deleted meanwhile are visited
// once.
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
      // A bucket has more entries than the batch; nothing was read.
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

// How often a look-up, a run or a deletion is tried, because the kernel may have no memory for a moment. An entry that
// exists must not count as absent then, and the work of a program must not be left out.
inline constexpr int kTries = 3;

// Copies the value of `key`. Returns 0 or a negative errno value; -ENOENT: there is no such entry.
template <typename Key, typename Value>
int LookUp(const bpf_map* map, const Key& key, Value& value) {
  int error = -ENOENT;
  for (int tries = 0; tries < kTries; tries++) {
    error = bpf_map__lookup_elem(map, &key, sizeof(key), &value, sizeof(value), 0);
    if (error == 0 || error == -ENOENT) break;
  }
  return error;
}

// Runs a program of the section "syscall", which may answer in its argument. Returns 0, or a negative errno value: it
// did not run.
template <typename Argument>
[[nodiscard]] int RunProgram(int program, Argument& argument) {
  int error = 0;
  for (int tries = 0; tries < kTries; tries++) {
    bpf_test_run_opts options = {};
    options.sz = sizeof(options);
    options.ctx_in = &argument;
    options.ctx_size_in = sizeof(argument);
    error = bpf_prog_test_run_opts(program, &options);
    if (error == 0) break;
  }
  return error;
}

// Numbers of entries of a map.
struct Deletion {
  size_t deleted = 0;
  size_t left = 0;  // that the kernel refused to delete, kTries times each
};

// Deletes the keys that exist.
template <typename Key>
Deletion DeleteKeys(const bpf_map* map, const std::vector<Key>& keys) {
  Deletion result;
  int tries = 0;
  for (size_t done = 0; done < keys.size();) {
    const auto asked = static_cast<uint32_t>(keys.size() - done);
    uint32_t count = asked;
    const int error = bpf_map_delete_batch(bpf_map__fd(map), &keys[done], &count, nullptr);
    // Linux before 6.8 does not set the count if it fails before the first key.
    if (error != 0 && count == asked) count = 0;
    result.deleted += count;
    done += count;
    if (error == 0) break;
    if (count != 0) tries = 0;
    if (error != -ENOENT && ++tries < kTries) continue;
    result.left += error != -ENOENT ? 1 : 0;
    done++;
    tries = 0;
  }
  return result;
}

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_MAP_ACCESS_H_
