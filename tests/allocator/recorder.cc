// SPDX-License-Identifier: Apache-2.0
#include "recorder.h"

#include <mutex>
#include <unordered_set>

#include "allocator/core/control.h"
#include "allocator/sampling/probes.h"

namespace heaptap::testing {
namespace {

std::mutex mutex;
Books books;
std::unordered_set<const void*> live;
std::function<void(heaptap_dump_request*)> dump_handler;

}  // namespace

Books ReadBooks() {
  std::lock_guard lock(mutex);
  Books copy = books;
  copy.live = live.size();
  return copy;
}

void ClearBooks() {
  std::lock_guard lock(mutex);
  books = Books();
}

SamplingOn::SamplingOn(uint32_t lg) {
  __atomic_store_n(&heaptap_control.collector_lg_sample, lg, __ATOMIC_RELAXED);
  __atomic_store_n(&heaptap_semaphore_alloc, 1, __ATOMIC_RELAXED);
}

SamplingOn::~SamplingOn() {
  __atomic_store_n(&heaptap_semaphore_alloc, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&heaptap_control.collector_lg_sample, HEAPTAP_NO_RATE, __ATOMIC_RELAXED);
}

void SetDumpHandler(std::function<void(heaptap_dump_request*)> handler) { dump_handler = std::move(handler); }

}  // namespace heaptap::testing

using namespace heaptap::testing;  // NOLINT: the probes are not in a namespace

extern "C" {

uint16_t heaptap_semaphore_alloc;
uint16_t heaptap_semaphore_free;
uint16_t heaptap_semaphore_start;
uint16_t heaptap_semaphore_dump;
uint16_t heaptap_semaphore_thread_name;

void heaptap_probe_alloc(const void* pointer, size_t size, uint64_t weighted_bytes) {
  std::lock_guard lock(mutex);
  books.allocs++;
  books.bytes += size;
  books.weight += weighted_bytes;
  if (!live.insert(pointer).second) books.errors++;
}

void heaptap_probe_free(const void* pointer) {
  std::lock_guard lock(mutex);
  books.frees++;
  if (live.erase(pointer) == 0) books.errors++;
}

// May fire before the constructors of this file: touches plain data only.
void heaptap_probe_start(const struct heaptap_control*) { books.starts++; }

void heaptap_probe_thread_name(const char* name) {
  std::lock_guard lock(mutex);
  books.thread_names.emplace_back(name);
}

void heaptap_probe_dump(const heaptap_dump_request* request) {
  if (dump_handler) dump_handler(const_cast<heaptap_dump_request*>(request));
}
}
