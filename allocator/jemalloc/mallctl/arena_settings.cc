// SPDX-License-Identifier: Apache-2.0
#include "allocator/jemalloc/mallctl/arena_settings.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include <atomic>

#include "allocator/core/arena.h"
#include "allocator/core/decay.h"
#include "allocator/jemalloc/mallctl/mallctl.h"
#include "allocator/platform/mutex.h"
#include "allocator/process/configuration.h"
#include "allocator/process/process.h"

namespace heaptap {
namespace {

// A decay time, or nothing.
class DecaySetting {
 public:
  ssize_t ReadOr(ssize_t otherwise) const {
    const ssize_t stored = stored_.load(std::memory_order_relaxed);
    return stored == 0 ? otherwise : stored - kOffset;
  }
  void Set(ssize_t value) { stored_.store(value + kOffset, std::memory_order_relaxed); }

 private:
  static constexpr ssize_t kOffset = 2;  // the least decay time is -1
  std::atomic<ssize_t> stored_;
};

constexpr size_t kNameSize = 32;

struct Settings {
  DecaySetting dirty_decay;
  DecaySetting muzzy_decay;
  char name[kNameSize];  // under name_mutex; "": the first name of arena 0
};

constinit Settings settings[kMostArenas]{};
constinit Settings of_new{};
constinit Mutex name_mutex{LockRank::kArenaName};

Settings& SettingsOf(size_t arena) { return arena == kNewArenas ? of_new : settings[arena]; }

int Exchange(const Request& request, size_t arena, ssize_t (*read)(size_t), void (*set)(size_t, ssize_t)) {
  const ssize_t old_value = read(arena);
  int error = request.Read(old_value);
  ssize_t new_value = old_value;
  if (error == 0) error = request.Write(&new_value);
  if (error != 0) return error;
  if (new_value < -1 || new_value > kMaxDecayMilliseconds) return EFAULT;
  if (request.has_new()) set(arena, new_value);
  return 0;
}

// Writes `number` behind `prefix`.
void MakeName(char (&name)[kNameSize], const char* prefix, unsigned number) {
  char digits[10];
  size_t count = 0;
  for (; number != 0 || count == 0; number /= 10) digits[count++] = static_cast<char>('0' + number % 10);
  size_t length = strlen(prefix);
  memcpy(name, prefix, length);
  while (count != 0) name[length++] = digits[--count];
  name[length] = '\0';
}

}  // namespace

ssize_t ReadDirtyDecay(size_t arena) {
  return arena == 0 ? DirtyDecay() : SettingsOf(arena).dirty_decay.ReadOr(ProcessConfiguration().dirty_decay_ms);
}

void SetDirtyDecay(size_t arena, ssize_t value) {
  arena == 0 ? SetDirtyDecay(value) : SettingsOf(arena).dirty_decay.Set(value);
}

ssize_t ReadMuzzyDecay(size_t arena) {
  return SettingsOf(arena).muzzy_decay.ReadOr(ProcessConfiguration().muzzy_decay_ms);
}

namespace {

void SetMuzzyDecay(size_t arena, ssize_t value) { SettingsOf(arena).muzzy_decay.Set(value); }

}  // namespace

void BeginArenaSettings(ArenaIndex arena) {
  SetDirtyDecay(arena, ReadDirtyDecay(kNewArenas));
  SetMuzzyDecay(arena, ReadMuzzyDecay(kNewArenas));
  MutexLock lock(name_mutex);
  MakeName(settings[arena].name, "manual_", arena);
}

int ExchangeDirtyDecay(const Request& request, size_t arena) {
  return Exchange(request, arena, ReadDirtyDecay, SetDirtyDecay);
}

int ExchangeMuzzyDecay(const Request& request, size_t arena) {
  return Exchange(request, arena, ReadMuzzyDecay, SetMuzzyDecay);
}

int ExchangeArenaName(const Request& request, size_t arena) {
  MutexLock lock(name_mutex);
  char(&name)[kNameSize] = settings[arena].name;
  if (name[0] == '\0') MakeName(name, "auto_", static_cast<unsigned>(arena));
  // As in jemalloc, the old name is copied to the buffer to which the old value points.
  if (request.wants_old()) {
    if (*request.old_length != sizeof(char*)) return EINVAL;
    char* target;
    memcpy(&target, request.old_value, sizeof(target));
    strcpy(target, name);
  }
  const char* new_name = nullptr;
  int error = request.Write(&new_name);
  if (error != 0 || !request.has_new()) return error;
  if (new_name == nullptr) return EINVAL;
  strncpy(name, new_name, kNameSize - 1);
  return 0;
}

void ResetArenaNamesAfterFork() { name_mutex.Reset(); }

}  // namespace heaptap
