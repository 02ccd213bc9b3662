// SPDX-License-Identifier: Apache-2.0
#include "allocator/sample/control.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <atomic>

#include "allocator/sample/probes.h"
#include "heaptap/contract.h"

extern "C" {
// The library's own block. Weak: a program with libheaptap.a in it has that block instead. Hidden: libheaptap.so must
// not find it.
__attribute__((weak, visibility("hidden"))) heaptap_control heaptap_control;

// Weak: a static program need not have them.
void* dlsym(void*, const char*) noexcept __attribute__((weak));
char* dlerror() noexcept __attribute__((weak));

// Defined by libheaptap-guest.a: the name of its host.
extern const char heaptap_sample_host[] __attribute__((weak, visibility("hidden")));

// The bounds of the section with the code of this library and of libheaptap-guest.a (text.ld), from the linker.
extern const char __start_heaptap_text[] __attribute__((visibility("hidden")));
extern const char __stop_heaptap_text[] __attribute__((visibility("hidden")));
}

namespace heaptap::sample {
namespace {

// The most frames of the program in a stack, as MALLOC_CONF has it by default (prof_bt_max).
constexpr uint32_t kMaxFrames = 128;

// The block in use. nullptr: the library has not started.
constinit std::atomic<struct ::heaptap_control*> control;
constinit uint64_t seed = 0;

// The number behind `key` in $HEAPTAP_CONF, a list "key:number,key:number" that the collector writes.
uint32_t OptionOr(const char* key, uint32_t otherwise) {
  const char* found = secure_getenv(HEAPTAP_CONF_VARIABLE);
  for (const size_t length = strlen(key); found != nullptr; found = strchr(found, ',')) {
    if (*found == ',') found++;
    if (strncmp(found, key, length) == 0) return static_cast<uint32_t>(strtoul(found + length, nullptr, 10));
  }
  return otherwise;
}

void StartSeed() {
  memcpy(&seed, reinterpret_cast<const void*>(getauxval(AT_RANDOM)), sizeof(seed));
  seed = OptionOr("prof_seed:", static_cast<uint32_t>(seed));
}

static_assert(HEAPTAP_RATE_SITES == 48, "probes.S has another number of sites");

// The interval that heaptap:rate has told and that no collector has confirmed; HEAPTAP_NO_RATE: none.
constinit std::atomic<uint32_t> unconfirmed{HEAPTAP_NO_RATE};
// The number of samples that were taken at that interval.
constinit std::atomic<uint32_t> uses;

uint32_t FollowToldRate() {
  for (uint32_t lg = 0; lg <= HEAPTAP_MAX_LG_SAMPLE; lg++) {
    if (__atomic_load_n(&heaptap_sample_semaphore_rate[HEAPTAP_RATE_SITE(lg)], __ATOMIC_RELAXED) == 0) continue;
    unconfirmed.store(lg, std::memory_order_relaxed);
    return lg;
  }
  return HEAPTAP_NO_RATE;
}

// Counts a sample at the told interval. The interval ends after HEAPTAP_UNCONFIRMED_SAMPLES of them, unless a collector
// has entered itself.
void CountUse(struct ::heaptap_control& block) {
  const uint32_t told = unconfirmed.load(std::memory_order_relaxed);
  if (told == HEAPTAP_NO_RATE) return;
  if (uses.fetch_add(1, std::memory_order_relaxed) + 1 < HEAPTAP_UNCONFIRMED_SAMPLES) return;
  unconfirmed.store(HEAPTAP_NO_RATE, std::memory_order_relaxed);
  if (__atomic_load_n(&block.collector_pid, __ATOMIC_RELAXED) != 0) return;
  // Another interval may have been set meanwhile by something other than a collector, such as `heaptap rate`.
  uint32_t expected = told;
  __atomic_compare_exchange_n(&block.collector_lg_sample, &expected, HEAPTAP_NO_RATE, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
}

void Publish() {
  struct ::heaptap_control& own = ::heaptap_control;
  own.version = HEAPTAP_CONTROL_VERSION;
  own.size = sizeof(own);
  own.pid = static_cast<uint32_t>(getpid());
  own.active = 1;
  own.lg_sample = HEAPTAP_DEFAULT_LG_SAMPLE;
  own.collector_lg_sample = OptionOr("lg_prof_sample:", HEAPTAP_NO_RATE);
  own.collector_pid = OptionOr("collector:", 0);
  if (own.collector_lg_sample == HEAPTAP_NO_RATE && own.collector_pid == 0) own.collector_lg_sample = FollowToldRate();
  own.collector_follows = own.collector_pid != 0;
  own.text_begin = reinterpret_cast<uint64_t>(__start_heaptap_text);
  own.text_end = reinterpret_cast<uint64_t>(__stop_heaptap_text);
  own.alloc_semaphore = reinterpret_cast<uint64_t>(&heaptap_sample_semaphore_alloc);
  own.max_frames = kMaxFrames;
  // Not empty, because the block has no statistics of an allocator.
  const char* host = heaptap_sample_host != nullptr ? heaptap_sample_host : "its own allocator";
  strncpy(own.host, host, sizeof(own.host) - 1);
  // A collector that finds the number finds the rest.
  __atomic_store_n(&own.magic, HEAPTAP_CONTROL_MAGIC, __ATOMIC_RELEASE);
}

// A collector that does not follow the child sets no interval there.
void AfterForkInChild() {
  struct ::heaptap_control* own = &::heaptap_control;
  if (control.load(std::memory_order_relaxed) != own) return;
  if (own->collector_follows != HEAPTAP_COLLECTOR_FOLLOWS) {
    own->collector_pid = 0;
    own->collector_lg_sample = HEAPTAP_NO_RATE;
  }
  own->pid = static_cast<uint32_t>(getpid());
  heaptap_sample_probe_start(own);
}

// A constructor, because dlsym takes the dynamic linker's lock and may allocate: an allocator that calls this library
// may hold any lock. It runs among the first constructors, to miss few blocks. libheaptap.so has started before.
[[gnu::constructor(101)]] void Start() {
  const int saved = errno;
  StartSeed();
  struct ::heaptap_control* own = &::heaptap_control;
  struct ::heaptap_control* found = nullptr;
  // libheaptap.a in the program has filled the block in.
  if (own->magic != 0) found = own;
  if (found == nullptr && dlsym != nullptr) {
    found = static_cast<struct ::heaptap_control*>(dlsym(RTLD_DEFAULT, HEAPTAP_CONTROL_SYMBOL));
    if (found == nullptr && dlerror != nullptr) dlerror();
  }
  pthread_atfork(nullptr, nullptr, AfterForkInChild);
  const bool is_own = found == nullptr;
  if (is_own) Publish();
  // Release: a thread that finds the block finds what is in it.
  control.store(is_own ? own : found, std::memory_order_release);
  if (is_own) heaptap_sample_probe_start(own);
  errno = saved;
}

}  // namespace

bool HasStarted() { return control.load(std::memory_order_relaxed) != nullptr; }

uint32_t CurrentLgInterval() {
  if (__atomic_load_n(&heaptap_sample_semaphore_alloc, __ATOMIC_RELAXED) == 0) return kOff;
  struct ::heaptap_control* block = control.load(std::memory_order_acquire);
  if (block == nullptr || __atomic_load_n(&block->active, __ATOMIC_RELAXED) == 0) return kOff;
  CountUse(*block);
  uint32_t lg = __atomic_load_n(&block->collector_lg_sample, __ATOMIC_RELAXED);
  if (lg == HEAPTAP_NO_RATE) lg = __atomic_load_n(&block->lg_sample, __ATOMIC_RELAXED);
  return lg < HEAPTAP_MAX_LG_SAMPLE ? lg : HEAPTAP_MAX_LG_SAMPLE;
}

uint64_t Seed() { return seed; }

}  // namespace heaptap::sample
