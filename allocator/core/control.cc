// SPDX-License-Identifier: Apache-2.0
//
// This file uses __atomic builtins instead of std::atomic, because C and eBPF programs share the struct.
#include "allocator/core/control.h"

#include <stdint.h>
#include <string.h>

extern "C" {
struct heaptap_control heaptap_control;
constinit struct heaptap_waits heaptap_waits = {.size = sizeof(struct heaptap_waits),
                                                .dump_turns = 0,
                                                .dump_answers = 0,
                                                .table_answers = 0,
                                                .dump_patience = HEAPTAP_DUMP_TIMEOUT_MILLISECONDS};
}

namespace heaptap::control {
namespace {

uint32_t Read(const uint32_t& field) { return __atomic_load_n(&field, __ATOMIC_RELAXED); }

void Write(uint32_t& field, uint32_t value) { __atomic_store_n(&field, value, __ATOMIC_RELAXED); }

}  // namespace

void Publish(const InitialValues& values) {
  struct heaptap_control& block = ::heaptap_control;
  block.version = HEAPTAP_CONTROL_VERSION;
  block.size = sizeof(block);
  block.pid = values.pid;
  block.options = values.options;
  block.active = values.is_active;
  block.lg_sample = values.lg_interval;
  block.collector_lg_sample = values.collector_lg_interval;
  block.collector_pid = values.collector_pid;
  block.collector_follows = values.collector_pid != 0 ? values.collector_follows : 0;
  block.text_begin = reinterpret_cast<uint64_t>(values.text_begin);
  block.text_end = reinterpret_cast<uint64_t>(values.text_end);
  block.max_frames = values.max_frames;
  block.alloc_semaphore = reinterpret_cast<uint64_t>(values.alloc_semaphore);
  // Release: a collector that finds the magic number finds the rest.
  __atomic_store_n(&block.magic, HEAPTAP_CONTROL_MAGIC, __ATOMIC_RELEASE);
}

void SetPid(uint32_t pid) { Write(::heaptap_control.pid, pid); }

void SetActive(bool is_active) { Write(::heaptap_control.active, is_active); }

void SetOwnLgInterval(uint32_t lg_interval) { Write(::heaptap_control.lg_sample, lg_interval); }

bool DoesCollectorFollow() { return (Read(::heaptap_control.collector_follows) & HEAPTAP_COLLECTOR_FOLLOWS) != 0; }

bool HasCollectorLeft() {
  return CollectorPid() == 0 && Read(::heaptap_control.collector_follows) == HEAPTAP_COLLECTOR_LEFT;
}

void ForgetCollector() {
  Write(::heaptap_control.collector_pid, 0);
  Write(::heaptap_control.collector_lg_sample, HEAPTAP_NO_RATE);
}

// Writes backwards, so that a collector that finds the first character finds the rest.
void SetHost(const char* name) {
  char(&host)[HEAPTAP_HOST_BYTES] = ::heaptap_control.host;
  size_t length = strnlen(name, sizeof(host) - 1);
  while (length-- != 0) __atomic_store_n(&host[length], name[length], __ATOMIC_RELEASE);
}

uint32_t BeginTableRequest() { return __atomic_add_fetch(&::heaptap_control.tables_asked, 1, __ATOMIC_RELAXED); }

uint32_t LatestTableRequest() { return Read(::heaptap_control.tables_asked); }

// Acquire: the tables were loaded before the answer.
bool IsTableRequestAnswered(uint32_t request) {
  return static_cast<int32_t>(__atomic_load_n(&::heaptap_control.tables_ready, __ATOMIC_ACQUIRE) - request) >= 0;
}

// Release: what the thread has done before is done when a debugger reads the count.
void CountWait(Wait wait) { __atomic_fetch_add(&(::heaptap_waits.*wait), 1, __ATOMIC_RELEASE); }

uint64_t DumpPatience() { return Read(::heaptap_waits.dump_patience); }

}  // namespace heaptap::control
