// SPDX-License-Identifier: Apache-2.0
#include "recorder.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "allocator/core/control.h"
#include "allocator/sampling/probes.h"

namespace heaptap::testing {
namespace {

std::mutex mutex;
Books books;
std::unordered_set<const void*> live;
std::unordered_map<uint64_t, uint64_t> numbered;  // address by serial number
std::function<void(heaptap_dump_request*)> dump_handler;

// A free may be reported twice.
void Take(const heaptap_free* frees, uint64_t where) {
  const auto count = static_cast<uint32_t>(where);
  for (uint32_t i = 0; i < count; i++) {
    const auto found = numbered.find(frees[i].serial);
    if (found == numbered.end()) continue;
    if (found->second != frees[i].address) books.errors++;
    numbered.erase(found);
  }
}

}  // namespace

Books ReadBooks() {
  std::lock_guard lock(mutex);
  Books copy = books;
  copy.live = live.size();
  copy.numbered = numbered.size();
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

FreesHeard::FreesHeard() { __atomic_store_n(&heaptap_semaphore_frees, 1, __ATOMIC_RELAXED); }
FreesHeard::~FreesHeard() { __atomic_store_n(&heaptap_semaphore_frees, 0, __ATOMIC_RELAXED); }

void SetDumpHandler(std::function<void(heaptap_dump_request*)> handler) { dump_handler = std::move(handler); }

}  // namespace heaptap::testing

using namespace heaptap::testing;  // NOLINT: the probes are not in a namespace

extern "C" {

uint16_t heaptap_semaphore_alloc;
uint16_t heaptap_semaphore_free;
uint16_t heaptap_semaphore_frees;
uint16_t heaptap_semaphore_start;
uint16_t heaptap_semaphore_dump;
uint16_t heaptap_semaphore_thread_name;
uint16_t heaptap_semaphore_rate[HEAPTAP_RATE_SITES];

void heaptap_probe_alloc(const void* pointer, size_t size, uint64_t weighted_bytes, uint64_t serial,
                         const heaptap_free* frees, uint64_t where) {
  std::lock_guard lock(mutex);
  Take(frees, where);
  if (!numbered.emplace(serial, reinterpret_cast<uint64_t>(pointer)).second) books.errors++;
  books.allocs++;
  books.bytes += size;
  books.weight += weighted_bytes;
  if (!live.insert(pointer).second) books.errors++;
}

void heaptap_probe_alloc_by_call(const void* pointer, size_t size, uint64_t weighted_bytes, uint64_t serial,
                                 const heaptap_free* frees, uint64_t where) {
  heaptap_probe_alloc(pointer, size, weighted_bytes, serial, frees, where);
}

void heaptap_probe_free(const void* pointer) {
  std::lock_guard lock(mutex);
  books.frees++;
  if (live.erase(pointer) == 0) books.errors++;
}

void heaptap_probe_frees(const heaptap_free* frees, uint64_t where) {
  std::lock_guard lock(mutex);
  if (frees == nullptr) {
    books.ends++;
    return;
  }
  books.reports++;
  books.largest_report = std::max<uint64_t>(books.largest_report, static_cast<uint32_t>(where));
  Take(frees, where);
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
