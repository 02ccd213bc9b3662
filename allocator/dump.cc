// SPDX-License-Identifier: Apache-2.0
#include "dump.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>

#include "mutex.h"
#include "probes.h"
#include "process.h"
#include "system.h"

namespace heaptap {
namespace {

constinit Mutex dump_mutex;  // for all that follows; held during a dump, so a fork does not wait for it
heaptap_dump_request request;
uint64_t last_sequence;       // of requests
uint64_t file_sequence;       // of automatic names, over all kinds
uint64_t kind_sequence[256];  // of automatic names, for each kind

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

int NoCollector() {
  Message message;
  message << "<heaptap>: no collector follows this process; run \"heaptap attach -p " << ProcessId() << "\" as root\n";
  message.Print();
  return EFAULT;
}

void AppendAutomaticName(heaptap_dump_kind kind, Message* name) {
  char letter = static_cast<char>(kind);
  *name << ProcessConfiguration().prefix << "." << ProcessId() << "." << file_sequence++ << ".";
  name->Append(&letter, 1);
  if (kind != HEAPTAP_DUMP_FINAL) *name << kind_sequence[static_cast<uint8_t>(kind)]++;
  *name << ".heap";
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

long OpenFile(const char* path, int flags) {
  return SystemCall(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path), O_CREAT | O_WRONLY | O_CLOEXEC | flags, 0644);
}

int AskFor(heaptap_dump_kind kind, const char* path, bool* made);

// REQUIRES: dump_mutex is held.
int Ask(heaptap_dump_kind kind, const char* path) {
  bool made = false;
  int result = AskFor(kind, path, &made);
  // An empty file is no dump.
  if (result != 0 && made) SystemCall(SYS_unlinkat, AT_FDCWD, reinterpret_cast<long>(path), 0);
  return result;
}

// Sets `*made` if there was no such file before.
int AskFor(heaptap_dump_kind kind, const char* path, bool* made) {
  // What is there already is the collector's to empty, when it is about to write.
  long number = OpenFile(path, O_EXCL);
  *made = number >= 0;
  Descriptor file(*made ? number : OpenFile(path, 0));
  Descriptor event(SystemCall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!file.valid() || !event.valid()) {
    Message message;
    message << "<heaptap>: failed to open \"" << path << "\"\n";
    message.Print();
    return EFAULT;
  }
  request.sequence = ++last_sequence;
  request.kind = static_cast<uint32_t>(kind);
  request.file_fd = file.number();
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
            << " ms; no dump in \"" << path << "\"\n";
    message.Print();
    return EAGAIN;
  }
  if (request.error == 0) return 0;
  if (request.error == ESRCH) return NoCollector();
  message << "<heaptap>: the collector could not write \"" << path << "\" (error "
          << static_cast<uint64_t>(request.error) << ")\n";
  message.Print();
  return EFAULT;
}

// REQUIRES: dump_mutex is held.
int DumpLocked(heaptap_dump_kind kind, const char* path) {
  if (path == nullptr && ProcessConfiguration().prefix[0] == '\0') return EFAULT;
  // Before the file is opened: what an earlier dump has left there must not be lost for nothing.
  if (__atomic_load_n(&heaptap_semaphore_dump, __ATOMIC_RELAXED) == 0) return NoCollector();
  Message name;
  if (path == nullptr) {
    AppendAutomaticName(kind, &name);
    path = name.text();
  }
  return Ask(kind, path);
}

void PrintLeaks() {
  if (request.leak_bytes == 0) return;
  auto plural = [](uint64_t count) { return count == 1 ? "" : "s"; };
  Message message;
  message << "<heaptap>: Leak approximation summary: ~" << request.leak_bytes << " byte" << plural(request.leak_bytes)
          << ", ~" << request.leak_objects << " object" << plural(request.leak_objects)
          << ", >= " << request.leak_contexts << " context" << plural(request.leak_contexts) << "\n"
          << "<heaptap>: Run jeprof on dump output for leak detail\n";
  message.Print();
}

// Twice the time that a dump may take: somebody else's, then this one's turn.
bool LockDumps() { return dump_mutex.LockWithin(2 * HEAPTAP_DUMP_TIMEOUT_MILLISECONDS); }

}  // namespace

int Dump(heaptap_dump_kind kind, const char* path) {
  if (!LockDumps()) return EAGAIN;
  int result = DumpLocked(kind, path);
  dump_mutex.Unlock();
  return result;
}

void DumpAtExit() {
  if (!LockDumps()) return;
  if (DumpLocked(HEAPTAP_DUMP_FINAL, nullptr) == 0 && ProcessConfiguration().prof_leak) PrintLeaks();
  dump_mutex.Unlock();
}

void ResetDumpsAfterFork() { dump_mutex.Reset(); }

}  // namespace heaptap
