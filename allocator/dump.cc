// SPDX-License-Identifier: Apache-2.0
#include "dump.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "dump_name.h"
#include "mutex.h"
#include "probes.h"
#include "process.h"
#include "profiling.h"
#include "system.h"

namespace heaptap {
namespace {

constinit Mutex dump_mutex;  // for all that follows; held during a dump, so a fork does not wait for it
heaptap_dump_request request;
uint64_t last_sequence;  // of requests

// This thread holds dump_mutex. A signal handler, a hook, or a trigger inside an allocation of theirs must not wait for
// the very dump that they interrupt.
constinit thread_local bool dumping = false;

// The right to ask. Taking it fails if the thread has it already, or if others keep it for too long.
class DumpScope {
 public:
  DumpScope() {
    if (dumping) return;
    dumping = true;
    taken_ = dump_mutex.LockWithin(kPatience);
    dumping = taken_;
  }
  ~DumpScope() {
    if (!taken_) return;
    dumping = false;
    dump_mutex.Unlock();
  }
  DumpScope(const DumpScope&) = delete;
  DumpScope& operator=(const DumpScope&) = delete;

  bool taken() const { return taken_; }

 private:
  // Twice the time that a dump may take: somebody else's, then this one's turn.
  static constexpr uint64_t kPatience = 2 * HEAPTAP_DUMP_TIMEOUT_MILLISECONDS;
  bool taken_ = false;
};

class Descriptor {
 public:
  explicit Descriptor(long number) : number_(static_cast<int>(number)) {}
  ~Descriptor() {
    if (number_ >= 0) SystemCall(SYS_close, number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool valid() const { return number_ >= 0; }
  int number() const { return number_; }

 private:
  int number_;
};

bool HasCollector() { return __atomic_load_n(&heaptap_semaphore_dump, __ATOMIC_RELAXED) != 0; }

int NoCollector() {
  Message message;
  message << "<heaptap>: no collector follows this process; run \"heaptap attach -p " << ProcessId() << "\" as root\n";
  message.Print();
  return EFAULT;
}

int CannotOpen(const char* path) {
  Message message;
  message << "<jemalloc>: failed to open \"" << path << "\"\n";
  message.Print();
  return EFAULT;
}

// Waits until the collector has answered the request at hand. False: it did not in time.
bool WaitForAnswer(int event_fd) {
  uint64_t deadline = Milliseconds() + HEAPTAP_DUMP_TIMEOUT_MILLISECONDS;
  while (__atomic_load_n(&request.answered, __ATOMIC_ACQUIRE) != request.sequence) {
    uint64_t now = Milliseconds();
    if (now >= deadline) return false;
    timespec left{};
    left.tv_sec = static_cast<time_t>((deadline - now) / 1000);
    left.tv_nsec = static_cast<long>((deadline - now) % 1000 * 1000000);
    pollfd wait{event_fd, POLLIN, 0};
    // Interrupted by a signal or woken for a late answer to another request: look again.
    if (SystemCall(SYS_ppoll, reinterpret_cast<long>(&wait), 1, reinterpret_cast<long>(&left)) > 0) {
      uint64_t count;
      SystemCall(SYS_read, event_fd, reinterpret_cast<long>(&count), sizeof(count));
    }
  }
  return true;
}

// `what`: the name of the file, for messages. REQUIRES: a DumpScope is taken.
int Ask(uint32_t kind, uint64_t argument, int file_fd, const char* what) {
  Descriptor event(SystemCall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK));
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
  heaptap_probe_dump(&request);
  Message message;
  if (!WaitForAnswer(event.number())) {
    // Withdrawn before the descriptors are closed: their numbers may soon be other files of the program's.
    __atomic_store_n(&request.sequence, 0, __ATOMIC_RELEASE);
    message << "<heaptap>: the collector did not answer within " << HEAPTAP_DUMP_TIMEOUT_MILLISECONDS
            << " ms; no dump in \"" << what << "\"\n";
    message.Print();
    return EAGAIN;
  }
  if (request.error == 0) return 0;
  if (request.error == ESRCH) return NoCollector();
  message << "<heaptap>: the collector could not write \"" << what << "\" (error "
          << static_cast<uint64_t>(request.error) << ")\n";
  message.Print();
  return EFAULT;
}

// Does not wait for whoever is to read a FIFO.
long OpenFile(const char* path, int flags) {
  return SystemCall(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path),
                    O_CREAT | O_WRONLY | O_CLOEXEC | O_NONBLOCK | flags, 0644);
}

// The collector writes into nothing else.
bool IsRegular(const Descriptor& file) {
  struct stat status;
  return file.valid() && SystemCall(SYS_fstat, file.number(), reinterpret_cast<long>(&status)) == 0 &&
         S_ISREG(status.st_mode);
}

void Remove(const char* path) { SystemCall(SYS_unlinkat, AT_FDCWD, reinterpret_cast<long>(path), 0); }

// Into a file that is there, since somebody may have it open already, as jemalloc does; or where none can be made
// beside it.
int AskForFileInPlace(uint32_t kind, uint64_t argument, const char* path) {
  long number = OpenFile(path, O_EXCL);
  const bool made = number >= 0;
  int result;
  {
    Descriptor file(made ? number : OpenFile(path, 0));
    result = IsRegular(file) ? Ask(kind, argument, file.number(), path) : CannotOpen(path);
  }
  if (result != 0 && made) Remove(path);
  return result;
}

bool Exists(const char* path) {
  struct stat status;
  return SystemCall(SYS_lstat, reinterpret_cast<long>(path), reinterpret_cast<long>(&status)) != -ENOENT;
}

// A new file gets its name when it is whole: whoever is killed meanwhile, and however full the disk is, there is never
// half a dump under it. REQUIRES: a DumpScope is taken.
int AskForFile(uint32_t kind, uint64_t argument, const char* path) {
  DumpName part;
  const int length = snprintf(part.text, sizeof(part.text), "%s.%u.part", path, ProcessId());
  if (length >= static_cast<int>(sizeof(part.text)) || Exists(path)) {
    return AskForFileInPlace(kind, argument, path);
  }
  int result;
  {
    Descriptor file(OpenFile(part.text, O_EXCL));
    if (!file.valid()) return AskForFileInPlace(kind, argument, path);
    result = Ask(kind, argument, file.number(), path);
  }
  if (result == 0 && SystemCall(SYS_rename, reinterpret_cast<long>(part.text), reinterpret_cast<long>(path)) != 0) {
    result = CannotOpen(path);
  }
  if (result != 0) Remove(part.text);
  return result;
}

// REQUIRES: a DumpScope is taken.
int DumpLocked(heaptap_dump_kind kind, const char* path) {
  if (path == nullptr && !HasDumpPrefix()) return EFAULT;
  // Before the file is opened: what an earlier dump has left there must not be lost for nothing.
  if (!HasCollector()) return NoCollector();
  DumpName name;
  if (path == nullptr) {
    MakeDumpName(kind, &name);
    path = name.text;
  }
  int result = AskForFile(static_cast<uint32_t>(kind), 0, path);
  DumpHook hook = __atomic_load_n(&hooks.dump, __ATOMIC_ACQUIRE);
  if (result == 0 && hook != nullptr) hook(path);
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

// Whether there are leaks; they have been printed.
bool FinalDumpShowsLeaks() {
  DumpScope scope;
  if (!scope.taken() || DumpLocked(HEAPTAP_DUMP_FINAL, nullptr) != 0) return false;
  if (!ProcessConfiguration().prof_leak || request.leak_bytes == 0) return false;
  PrintLeaks();
  return true;
}

}  // namespace

int Dump(heaptap_dump_kind kind, const char* path) {
  DumpScope scope;
  return scope.taken() ? DumpLocked(kind, path) : EAGAIN;
}

void DumpOnTrigger(heaptap_dump_kind kind) {
  static constinit std::atomic<bool> said;
  if (!HasCollector() && said.exchange(true, std::memory_order_relaxed)) return;
  int saved = errno;
  Dump(kind, nullptr);
  errno = saved;
}

int DumpRecords(heaptap_ask_kind kind, uint64_t count, int file_fd) {
  DumpScope scope;
  if (!scope.taken()) return EAGAIN;
  return HasCollector() ? Ask(static_cast<uint32_t>(kind), count, file_fd, "recent samples") : NoCollector();
}

int DumpLog(uint64_t count, const char* path) {
  DumpScope scope;
  if (!scope.taken()) return EAGAIN;
  if (path == nullptr && !HasDumpPrefix()) return EFAULT;
  if (!HasCollector()) return NoCollector();
  DumpName name;
  if (path == nullptr) {
    MakeLogName(&name);
    path = name.text;
  }
  return AskForFile(HEAPTAP_ASK_LOG, count, path);
}

int SetDumpPrefix(const char* prefix) {
  DumpScope scope;
  if (!scope.taken()) return EFAULT;
  ChangePrefix(prefix);
  return 0;
}

void DumpAtExit() {
  // Not _exit: what the program has written to its streams must still get out. glibc's exit goes on with the handlers
  // that are left when one of them calls it again.
  if (FinalDumpShowsLeaks() && ProcessConfiguration().prof_leak_error) exit(1);
}

void ResetDumpsAfterFork() {
  dump_mutex.Reset();
  dumping = false;
}

}  // namespace heaptap
