// SPDX-License-Identifier: Apache-2.0
#include "allocator/profiling/records.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <atomic>

#include "allocator/platform/assert.h"
#include "allocator/platform/libc.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/system.h"
#include "allocator/process/process.h"
#include "allocator/profiling/dump.h"
#include "allocator/sampling/areas.h"
#include "allocator/sampling/pending_frees.h"
#include "allocator/sampling/probes.h"

namespace heaptap {

constinit std::atomic<bool> is_logged;
constinit std::atomic<uint64_t> logged_samples;

namespace {

constinit std::atomic<ssize_t> recent_maximum;

enum class LogState : uint8_t { kNone, kRuns, kEnds };

constinit Mutex log_mutex{LockRank::kLog};  // for changes of the variables below; held no longer than to copy a name
LogState log_state;
bool has_log_path;
char log_path[PATH_MAX];  // changes only from kNone to kRuns

bool IsLogged() { return is_logged.load(std::memory_order_relaxed); }

// Under log_mutex, or in the child of a fork.
void SetLogState(LogState state) {
  log_state = state;
  is_logged.store(state == LogState::kRuns, std::memory_order_relaxed);
}

bool IsRecorded() { return recent_maximum.load(std::memory_order_relaxed) != 0 || IsLogged(); }

void TellCollector() {
  heaptap_dump_request request{};
  request.kind = HEAPTAP_ASK_RECORD;
  request.argument = IsRecorded() ? 1 : 0;
  ReportFreesAtOnce(IsRecorded());
  areas::SetPaused(IsRecorded());
  heaptap_probe_dump(&request);
}

void StopLogAtExit() {
  if (IsLogged()) StopLog();
}

// The number of bytes read; 0 at the end or after an error.
size_t ReadAt(const FileDescriptor& file, char* to, size_t size, uint64_t offset) {
  const long got = SystemCall(SYS_pread64, file.number(), reinterpret_cast<long>(to), static_cast<long>(size),
                              static_cast<long>(offset));
  return got > 0 ? static_cast<size_t>(got) : 0;
}

}  // namespace

void StartRecords() {
  const Configuration& configuration = ProcessConfiguration();
  if (!configuration.prof) return;
  recent_maximum.store(configuration.prof_recent_alloc_max, std::memory_order_relaxed);
  if (configuration.prof_log) StartLog(nullptr);
}

void ResetRecordsAfterFork() {
  log_mutex.Reset();
  SetLogState(LogState::kNone);
}

void IntroduceRecords() {
  if (IsRecorded()) TellCollector();
}

ssize_t RecentMaximum() { return recent_maximum.load(std::memory_order_relaxed); }

void SetRecentMaximum(ssize_t maximum) {
  HEAPTAP_ASSERT(maximum >= -1);
  recent_maximum.store(maximum, std::memory_order_relaxed);
  TellCollector();
}

int DumpRecent(void (*write)(void* opaque, const char* text), void* opaque) {
  const FileDescriptor file(SystemCall(SYS_memfd_create, reinterpret_cast<long>("heaptap"), MFD_CLOEXEC));
  if (!file.valid()) return EFAULT;
  // -1 (all records) becomes the largest number.
  const int error = DumpRecords(HEAPTAP_ASK_RECENT, static_cast<uint64_t>(RecentMaximum()), file.number());
  if (error != 0) return error;
  char piece[4096];
  uint64_t offset = 0;
  while (size_t size = ReadAt(file, piece, sizeof(piece) - 1, offset)) {
    piece[size] = '\0';
    write(opaque, piece);
    offset += size;
  }
  return 0;
}

int StartLog(const char* path) {
  if (path != nullptr && strnlen(path, PATH_MAX) == PATH_MAX) return EFAULT;
  static constinit std::atomic<bool> registered;
  {
    MutexLock lock(log_mutex);
    if (log_state != LogState::kNone) return EFAULT;
    has_log_path = path != nullptr;
    if (has_log_path) strcpy(log_path, path);
    logged_samples.store(0, std::memory_order_relaxed);
    SetLogState(LogState::kRuns);
  }
  TellCollector();
  // The end of the process ends a log that is still running.
  if (!registered.exchange(true, std::memory_order_relaxed)) libc::AtExit(StopLogAtExit);
  return 0;
}

int StopLog() {
  {
    MutexLock lock(log_mutex);
    if (log_state != LogState::kRuns) return EFAULT;
    SetLogState(LogState::kEnds);
  }
  const int error = DumpLog(logged_samples.load(std::memory_order_relaxed), has_log_path ? log_path : nullptr);
  // If the collector did not answer in time, the program may try again.
  {
    MutexLock lock(log_mutex);
    SetLogState(error == EAGAIN ? LogState::kRuns : LogState::kNone);
  }
  TellCollector();
  return error == 0 ? 0 : EFAULT;
}

}  // namespace heaptap
