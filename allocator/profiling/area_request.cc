// SPDX-License-Identifier: Apache-2.0
#include "allocator/profiling/area_request.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include <atomic>

#include "allocator/core/control.h"
#include "allocator/platform/clock.h"
#include "allocator/platform/system.h"
#include "allocator/sampling/areas.h"
#include "allocator/sampling/counting.h"
#include "allocator/sampling/probes.h"

namespace heaptap {
namespace {

// A request takes as long as some thousand reports. Short programs and children that soon execute another program need
// none.
constexpr uint32_t kReportsBefore = 1000;

// Milliseconds. A comparison with the kernel's stacks (verify_counts) must not depend on how busy the machine is.
constexpr uint64_t kPatience = 100;
constexpr uint64_t kPatienceOfVerification = 20000;
// A collector that did not answer in time may have been busy for a moment; one that refused has no area to give.
constexpr uint64_t kPauseAfterTimeout = 1000;  // at first; twice as long after each
constexpr uint64_t kLongestPause = 60000;

constinit std::atomic<uint64_t> paused_until;  // Milliseconds()
constinit std::atomic<uint64_t> next_pause{kPauseAfterTimeout};
constinit std::atomic<bool> is_asking;
constinit std::atomic<uint32_t> reported;

// Whether the descriptor is readable within the patience.
bool AwaitPacket(const FileDescriptor& socket) {
  const uint64_t patience = counting::is_verifying ? kPatienceOfVerification : kPatience;
  const uint64_t begin = Milliseconds();
  for (;;) {
    const uint64_t waited = Milliseconds() - begin;
    if (waited >= patience) return false;
    const uint64_t left = patience - waited;
    timespec wait = {static_cast<time_t>(left / 1000), static_cast<long>(left % 1000 * 1000000)};
    pollfd event = {socket.number(), POLLIN, 0};
    const long ready = SystemCall(SYS_ppoll, reinterpret_cast<long>(&event), 1, reinterpret_cast<long>(&wait));
    if (ready > 0) return (event.revents & POLLIN) != 0;
    if (ready != -EINTR && ready != 0) return false;
  }
}

// The descriptor in a packet, or -1.
long TakeDescriptor(const FileDescriptor& socket) {
  char byte;
  iovec data = {&byte, sizeof(byte)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const long got =
      SystemCall(SYS_recvmsg, socket.number(), reinterpret_cast<long>(&message), MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (got <= 0 || header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return -1;
  }
  int descriptor;
  memcpy(&descriptor, CMSG_DATA(header), sizeof(descriptor));
  return descriptor;
}

void* Map(const FileDescriptor& area) {
  const long mapped = SystemCall(SYS_mmap, 0, HEAPTAP_AREA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, area.number(), 0);
  if (Failed(mapped)) return nullptr;
  void* const memory = reinterpret_cast<void*>(mapped);
  // A child must not count for its parent.
  if (SystemCall(SYS_madvise, mapped, HEAPTAP_AREA_BYTES, MADV_DONTFORK) == 0) return memory;
  Unmap(memory, HEAPTAP_AREA_BYTES);
  return nullptr;
}

enum class Answer { kArea, kNone, kLate };

Answer TakeArea(areas::Wanted wanted) {
  int pair[2];
  if (SystemCall(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, reinterpret_cast<long>(pair)) != 0) {
    return Answer::kNone;
  }
  const FileDescriptor mine(pair[0]);
  const FileDescriptor collectors(pair[1]);
  heaptap_dump_request request{};
  socklen_t size = sizeof(request.sequence);
  if (SystemCall(SYS_getsockopt, collectors.number(), SOL_SOCKET, SO_COOKIE, reinterpret_cast<long>(&request.sequence),
                 reinterpret_cast<long>(&size)) != 0) {
    return Answer::kNone;
  }
  request.kind = HEAPTAP_ASK_AREA;
  request.argument = wanted == areas::Wanted::kFirst ? 0 : areas::CountOfBooks();
  request.file_fd = collectors.number();
  heaptap_probe_dump(&request);
  if (!AwaitPacket(mine)) return Answer::kLate;
  const FileDescriptor area(TakeDescriptor(mine));
  void* const memory = area.valid() ? Map(area) : nullptr;
  if (memory == nullptr) return Answer::kNone;
  if (counting::AddArea(memory, wanted)) return Answer::kArea;
  Unmap(memory, HEAPTAP_AREA_BYTES);
  return Answer::kNone;
}

// After this answer. One thread asks at a time.
void Pause(Answer answer) {
  uint64_t next = kPauseAfterTimeout;
  if (answer != Answer::kArea) {
    const uint64_t pause = answer == Answer::kLate ? next_pause.load(std::memory_order_relaxed) : kLongestPause;
    paused_until.store(Milliseconds() + pause, std::memory_order_relaxed);
    next = pause >= kLongestPause / 2 ? kLongestPause : 2 * pause;
  }
  next_pause.store(next, std::memory_order_relaxed);
}

}  // namespace

void area_request_internal::Ask() {
  if (control::CollectorPid() == 0) return;
  if (areas::WantedArea() == areas::Wanted::kNone || control::EffectiveLgInterval() != 0) return;
  if (reported.load(std::memory_order_relaxed) < kReportsBefore) {
    reported.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (!HasListener(heaptap_semaphore_dump)) return;
  if (Milliseconds() < paused_until.load(std::memory_order_relaxed)) return;
  if (is_asking.exchange(true, std::memory_order_acquire)) return;
  // Another thread may have taken an area meanwhile. A process that asks for its first area twice gets the same one.
  if (const areas::Wanted wanted = areas::WantedArea(); wanted != areas::Wanted::kNone) Pause(TakeArea(wanted));
  is_asking.store(false, std::memory_order_release);
}

void ResetAreaRequestAfterFork() {
  reported.store(0, std::memory_order_relaxed);
  paused_until.store(0, std::memory_order_relaxed);
  next_pause.store(kPauseAfterTimeout, std::memory_order_relaxed);
  is_asking.store(false, std::memory_order_relaxed);
}

}  // namespace heaptap
