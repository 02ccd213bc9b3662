// SPDX-License-Identifier: Apache-2.0
#include "allocator/profiling/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "allocator/core/control.h"
#include "allocator/platform/assert.h"
#include "allocator/platform/clock.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/system.h"
#include "allocator/process/collector.h"
#include "allocator/process/process.h"
#include "allocator/profiling/dump_file.h"
#include "allocator/profiling/dump_name.h"
#include "allocator/profiling/hooks.h"
#include "allocator/sampling/counting.h"
#include "allocator/sampling/pending_frees.h"
#include "allocator/sampling/probes.h"

namespace heaptap {
namespace {

constinit Mutex dump_mutex{LockRank::kDump};  // for the variables below; held during a dump, so fork does not take it
heaptap_dump_request request;
uint64_t last_sequence;  // heaptap_dump_request.sequence of the last request

// Whether this thread is in a DumpScope. Prevents re-entry from a signal handler or from an allocation during the dump,
// which would wait for the dump that it interrupts.
constinit thread_local bool dumping = false;

// Milliseconds: twice the time that a dump may take. Another thread's dump may come first.
uint64_t LockTimeout() { return 2 * control::DumpPatience(); }

// How many requests have timed out. A thread that waits for dump_mutex during a timeout gives up, too.
constinit std::atomic<uint64_t> timeouts;

// Exclusive use of the request. Not taken if the thread has it already, if other threads hold it for longer than
// `lock_timeout` milliseconds, or if a request times out in the meantime.
class DumpScope {
 public:
  explicit DumpScope(uint64_t lock_timeout = LockTimeout()) {
    if (dumping) return;
    dumping = true;
    const uint64_t timeouts_before = timeouts.load(std::memory_order_relaxed);
    if (lock_timeout != 0) control::CountWait(&heaptap_waits::dump_turns);
    taken_ = lock_timeout == 0 ? dump_mutex.TryLock() : dump_mutex.LockWithin(lock_timeout);
    if (taken_ && timeouts.load(std::memory_order_relaxed) != timeouts_before) {
      dump_mutex.Unlock();
      taken_ = false;
    }
    dumping = taken_;
  }
  ~DumpScope() {
    if (!taken_) return;
    dump_mutex.Unlock();
    dumping = false;
  }
  DumpScope(const DumpScope&) = delete;
  DumpScope& operator=(const DumpScope&) = delete;

  bool taken() const { return taken_; }

 private:
  bool taken_ = false;
};

// The advice to the user when no collector records the process.
enum class Advice { kAttach, kRun, kSilent };

int NoCollector(Advice advice) {
  if (advice == Advice::kSilent) return EFAULT;
  Message message;
  message << "<heaptap>: no dump: no collector records this process; ";
  if (advice == Advice::kRun) {
    message << "for a dump at exit start it as root with \"heaptap run -- PROGRAM\"\n";
  } else {
    message << "run \"heaptap attach -p " << ProcessId() << "\" as root and try again\n";
  }
  message.Print();
  return EFAULT;
}

int CannotOpen(const char* path) {
  Message message;
  message << "<jemalloc>: failed to open \"" << path << "\"\n";
  message.Print();
  return EFAULT;
}

enum class Answer { kGiven, kLate, kNever, kNotNow };

// The time limits of a request, in milliseconds. They are parts of the patience, which is the only setting.
struct WaitLimits {
  uint64_t answer;        // for the answer
  uint64_t successor;     // for another collector to take over when the collector has ended, or for its probes to go
  uint64_t introduction;  // for a collector that has not yet entered itself in the control block
};
WaitLimits NormalLimits() {
  const uint64_t patience = control::DumpPatience();
  return {patience, patience / 10, patience * 3 / 20};
}
WaitLimits ShortLimits() { return {control::DumpPatience() / 10, 0, 0}; }

// A collector that has not answered gets only the short limits for this time. Otherwise the end of a process could wait
// several times: for a triggered dump, the final dump and the log. Protected by DumpScope.
constexpr uint64_t kUnresponsiveMilliseconds = 60000;
uint64_t unresponsive_until;
uint32_t unresponsive_collector;  // heaptap_control.collector_pid

// Called in each step of a wait, because the patience may change.
using CurrentLimits = WaitLimits (*)();
CurrentLimits ChooseLimits() {
  const bool is_unresponsive = Milliseconds() < unresponsive_until && control::CollectorPid() == unresponsive_collector;
  return is_unresponsive ? ShortLimits : NormalLimits;
}

void NoteUnresponsive() {
  unresponsive_until = Milliseconds() + kUnresponsiveMilliseconds;
  unresponsive_collector = control::CollectorPid();
}

// Waits until the event is signalled or the time is over. If the program has closed the descriptor or lowered
// RLIMIT_NOFILE, it waits for the whole time.
void WaitForEvent(int event_fd, uint64_t milliseconds) {
  timespec wait{};
  wait.tv_nsec = static_cast<long>(milliseconds * 1000000);
  pollfd event{event_fd, POLLIN, 0};
  const long ready = SystemCall(SYS_ppoll, reinterpret_cast<long>(&event), 1, reinterpret_cast<long>(&wait));
  if (ready == 0 || ready == -EINTR) return;
  uint64_t count;
  if (ready > 0 && SystemCall(SYS_read, event_fd, reinterpret_cast<long>(&count), sizeof(count)) > 0) return;
  SystemCall(SYS_nanosleep, reinterpret_cast<long>(&wait), 0);
}

// Acquire: the other fields of the answer are written. A builtin, since C programs share the struct.
bool IsAnswered() { return __atomic_load_n(&request.answered, __ATOMIC_ACQUIRE) == request.sequence; }

// Waits for the collector's answer; gives up when the collector goes away. The end of a process does not wait for
// another collector to come: a daemon that comes later writes a dump of the process anyway.
Answer WaitForAnswer(int event_fd, CurrentLimits current_limits, bool is_end) {
  constexpr uint64_t kCheckInterval = 50;  // milliseconds between two checks for the collector
  const uint64_t begin = Milliseconds();
  control::CountWait(&heaptap_waits::dump_answers);
  while (!IsAnswered()) {
    const WaitLimits limits = current_limits();
    const uint64_t waited = Milliseconds() - begin;
    if (waited >= limits.answer) return Answer::kLate;
    if (is_end && HasCollectorEnded()) break;
    const uint64_t left = limits.answer - waited;
    WaitForEvent(event_fd, left < kCheckInterval ? left : kCheckInterval);
    if (HasCollector()) {
      const bool is_known = control::CollectorPid() != 0;
      if (waited < (is_known ? limits.successor : limits.introduction)) continue;
      if (is_known && !HasCollectorEnded()) continue;
    }
    break;
  }
  if (IsAnswered()) return Answer::kGiven;
  return HasCollector() && control::CollectorPid() != 0 ? Answer::kNotNow : Answer::kNever;
}

// Sends the request and waits for the answer. `what`: the name of the file, for messages. Returns 0 or an errno value.
// REQUIRES: a DumpScope is taken.
int SendRequest(uint32_t kind, uint64_t argument, int file_fd, const char* what, Advice advice) {
  HEAPTAP_ASSERT(Mutex::Holds(LockRank::kDump));
  FileDescriptor event(SystemCall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return CannotOpen(what);
  request.sequence = ++last_sequence;
  request.argument = argument;
  request.kind = kind;
  request.file_fd = file_fd;
  request.event_fd = event.number();
  request.error = 0;
  request.leak_bytes = 0;
  request.leak_objects = 0;
  request.leak_contexts = 0;
  ReportFreesOfAllThreads();
  heaptap_probe_dump(&request);
  const CurrentLimits limits = ChooseLimits();
  const Answer answer = WaitForAnswer(event.number(), limits, kind == HEAPTAP_DUMP_FINAL);
  if (answer != Answer::kGiven) {
    NoteUnresponsive();
    // The request is withdrawn before the descriptors are closed, since other files may soon get their numbers.
    // Release: the process is done with the request when a collector finds it withdrawn.
    __atomic_store_n(&request.sequence, 0, __ATOMIC_RELEASE);
    if (answer == Answer::kNever) return NoCollector(advice);
  } else if (request.error == 0) {
    unresponsive_until = 0;
    return 0;
  } else if (request.error == ESRCH) {
    return NoCollector(advice);
  }
  Message message;
  if (answer == Answer::kLate) {
    timeouts.fetch_add(1, std::memory_order_relaxed);
    message << "<heaptap>: cannot dump \"" << what << "\": the collector did not answer within " << limits().answer
            << " ms; try again, or restart the collector\n";
  } else if (answer == Answer::kNotNow) {
    message << "<heaptap>: cannot dump \"" << what << "\": the collector has ended; start it and try again\n";
  } else {
    message << "<heaptap>: cannot dump \"" << what << "\": the collector could not write it (errno "
            << static_cast<uint64_t>(request.error) << "); see the collector's messages\n";
  }
  message.Print();
  return answer == Answer::kGiven ? EFAULT : EAGAIN;
}

// `path` nullptr: an automatic name. REQUIRES: a DumpScope is taken.
int RequestFile(uint32_t kind, uint64_t argument, const char* path, Advice advice) {
  HEAPTAP_ASSERT(Mutex::Holds(LockRank::kDump));
  DumpFile file(kind, path);
  if (!file.IsRegular()) return CannotOpen(file.path());
  const int result = SendRequest(kind, argument, file.number(), file.path(), advice);
  if (result != 0) return result;
  return file.Finish() ? 0 : CannotOpen(file.path());
}

// Many programs close stderr before their last exit handlers run.
bool CanPrint() {
  if (malloc_message != nullptr) return true;
  const long flags = SystemCall(SYS_fcntl, STDERR_FILENO, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

// `path` nullptr: an automatic name. REQUIRES: a DumpScope is taken.
int DumpLocked(heaptap_dump_kind kind, const char* path, Advice advice) {
  HEAPTAP_ASSERT(Mutex::Holds(LockRank::kDump));
  if (path == nullptr && !HasDumpPrefix()) return EFAULT;
  // Checked before the file is opened, so that an earlier dump there is not lost for nothing.
  if (!HasCollector()) return NoCollector(advice);
  // Checked before the file is opened, since the file may get the number of a closed stderr.
  const bool collector_prints = kind == HEAPTAP_DUMP_FINAL && ProcessConfiguration().prof_leak && !CanPrint();
  return RequestFile(static_cast<uint32_t>(kind), collector_prints ? HEAPTAP_FINAL_PRINT_LEAKS : 0, path, advice);
}

bool IsHookSet() { return hooks.dump.load(std::memory_order_relaxed) != nullptr; }

// A dump with an automatic name, when a hook is set. Copies the name, since another dump may overwrite it before
// the hook runs. Has a large stack frame.
[[gnu::noinline]] int DumpAndTellName(heaptap_dump_kind kind, uint64_t lock_timeout, Advice advice) {
  char name[PATH_MAX];
  int result;
  {
    DumpScope scope(lock_timeout);
    if (!scope.taken()) return EBUSY;
    result = DumpLocked(kind, nullptr, advice);
    strncpy(name, LastAutomaticName(), sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
  }
  if (result == 0) CallHook(hooks.dump, static_cast<const char*>(name));
  return result;
}

// EBUSY: no DumpScope could be taken within `lock_timeout` milliseconds.
int DumpWithin(heaptap_dump_kind kind, const char* path, uint64_t lock_timeout, Advice advice) {
  if (path == nullptr && IsHookSet()) return DumpAndTellName(kind, lock_timeout, advice);
  int result;
  {
    DumpScope scope(lock_timeout);
    if (!scope.taken()) return EBUSY;
    result = DumpLocked(kind, path, advice);
  }
  if (result == 0 && path != nullptr) CallHook(hooks.dump, path);
  return result;
}

void PrintLeaks() {
  auto plural = [](uint64_t count) { return count == 1 ? "" : "s"; };
  Message message;
  message << "<jemalloc>: Leak approximation summary: ~" << request.leak_bytes << " byte" << plural(request.leak_bytes)
          << ", ~" << request.leak_objects << " object" << plural(request.leak_objects)
          << ", >= " << request.leak_contexts << " context" << plural(request.leak_contexts) << "\n"
          << "<jemalloc>: Run jeprof on dump output for leak detail\n";
  if (ProcessConfiguration().prof_leak_error) {
    message << "<jemalloc>: Exiting with error code because memory leaks were detected\n";
  }
  message.Print();
}

// Makes the final dump. With prof_leak, prints the leaks and returns whether there are any, else returns false.
bool FinalDumpShowsLeaks() {
  DumpScope scope;
  if (!scope.taken() || DumpLocked(HEAPTAP_DUMP_FINAL, nullptr, Advice::kRun) != 0) return false;
  if (!ProcessConfiguration().prof_leak || request.leak_bytes == 0) return false;
  PrintLeaks();
  return true;
}

// After a triggered dump has failed, triggers pause for this time, or until another collector comes. Otherwise threads
// would wait for each trigger, and each would print a message.
constexpr uint64_t kTriggersPauseMilliseconds = 60000;
constinit std::atomic<uint64_t> triggers_paused_until;
constinit std::atomic<uint32_t> triggers_paused_for;  // heaptap_control.collector_pid

bool AreTriggersPaused() {
  return Milliseconds() < triggers_paused_until.load(std::memory_order_relaxed) &&
         control::CollectorPid() == triggers_paused_for.load(std::memory_order_relaxed);
}

}  // namespace

int Dump(heaptap_dump_kind kind, const char* path) {
  const int error = DumpWithin(kind, path, LockTimeout(), Advice::kAttach);
  return error == EBUSY ? EAGAIN : error;
}

void DumpOnTrigger(heaptap_dump_kind kind) {
  static constinit std::atomic<bool> is_reported;
  const Advice advice = is_reported.load(std::memory_order_relaxed) ? Advice::kSilent : Advice::kAttach;
  if (!HasCollector() && advice == Advice::kSilent) return;
  if (AreTriggersPaused()) return;
  int saved = errno;
  const int error = DumpWithin(kind, nullptr, 0, advice);
  if (error == EFAULT) is_reported.store(true, std::memory_order_relaxed);
  if (error != 0 && error != EBUSY && HasCollector()) {
    triggers_paused_for.store(control::CollectorPid(), std::memory_order_relaxed);
    triggers_paused_until.store(Milliseconds() + kTriggersPauseMilliseconds, std::memory_order_relaxed);
  }
  errno = saved;
}

void AskForReset(uint64_t lg_interval) {
  heaptap_dump_request reset{};
  reset.kind = HEAPTAP_ASK_RESET;
  reset.argument = lg_interval;
  // The collector must not be reading the books that end here. A signal handler that interrupts a dump on the same
  // thread resets without the scope.
  DumpScope scope;
  ReportFreesOfAllThreads();
  counting::Close();
  heaptap_probe_dump(&reset);
}

int DumpRecords(heaptap_ask_kind kind, uint64_t count, int file_fd) {
  DumpScope scope;
  if (!scope.taken()) return EAGAIN;
  if (!HasCollector()) return NoCollector(Advice::kAttach);
  return SendRequest(static_cast<uint32_t>(kind), count, file_fd, "recent samples", Advice::kAttach);
}

int DumpLog(uint64_t count, const char* path) {
  DumpScope scope;
  if (!scope.taken()) return EAGAIN;
  if (path == nullptr && !HasDumpPrefix()) return EFAULT;
  if (!HasCollector()) return NoCollector(Advice::kAttach);
  return RequestFile(HEAPTAP_ASK_LOG, count, path, Advice::kAttach);
}

int SetDumpPrefix(const char* prefix) {
  DumpScope scope;
  if (!scope.taken()) return EFAULT;
  ChangePrefix(prefix);
  return 0;
}

void DumpAtExit() {
  // Not _exit, since the program's streams must still be flushed. When an exit handler calls exit again, glibc
  // continues with the remaining handlers.
  if (FinalDumpShowsLeaks() && ProcessConfiguration().prof_leak_error) exit(1);
}

void ResetDumpsAfterFork() {
  dump_mutex.Reset();
  dumping = false;
}

}  // namespace heaptap
