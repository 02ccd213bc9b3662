// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/probe_sites.h"

#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include <atomic>

#include "allocator/platform/numbers.h"
#include "allocator/platform/system.h"

namespace heaptap {

using probe_sites_internal::Mark;
using probe_sites_internal::mark;

namespace {

// The first Linux that turns such probes into calls. Earlier versions single-step the nop, which takes longer than the
// breakpoint.
constexpr unsigned kMajor = 6;
constexpr unsigned kMinor = 18;

unsigned ReadNumber(const char** text) {
  unsigned number = 0;
  for (; **text >= '0' && **text <= '9'; (*text)++) number = number * 10 + static_cast<unsigned>(**text - '0');
  return number;
}

bool HasKernel() {
  utsname names;
  if (SystemCall(SYS_uname, reinterpret_cast<long>(&names)) != 0) return false;
  const char* text = names.release;
  const unsigned major = ReadNumber(&text);
  if (*text == '.') text++;
  const unsigned minor = ReadNumber(&text);
  return major > kMajor || (major == kMajor && minor >= kMinor);
}

// Where no page can be made.
constinit Mark no_mark{};

Mark* MakePage() {
  auto* made = static_cast<Mark*>(MapAligned(kPageSize, kPageSize));
  if (made == nullptr) return &no_mark;
  if (SystemCall(SYS_madvise, reinterpret_cast<long>(made), kPageSize, MADV_WIPEONFORK) != 0) {
    Unmap(made, kPageSize);
    return &no_mark;
  }
  made->is_own_process = 1;
  made->can_use_call_site = HasKernel();
  return made;
}

}  // namespace

constinit std::atomic<const Mark*> probe_sites_internal::mark;

[[gnu::cold, gnu::noinline]] const Mark* probe_sites_internal::MakeMark() {
  Mark* const made = MakePage();
  const Mark* before = nullptr;
  // Release: the page is filled before other threads can find it.
  if (mark.compare_exchange_strong(before, made, std::memory_order_acq_rel)) return made;
  if (made != &no_mark) Unmap(made, kPageSize);
  return before;
}

bool CanUseCallSite() {
  const Mark* known = mark.load(std::memory_order_acquire);
  if (known == nullptr) [[unlikely]]
    known = probe_sites_internal::MakeMark();
  return known->can_use_call_site != 0;
}

void BeOwnProcess() {
  const Mark* const known = mark.load(std::memory_order_acquire);
  if (known != nullptr && known != &no_mark) const_cast<Mark*>(known)->is_own_process = 1;
}

}  // namespace heaptap
