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
namespace {

// The first Linux that turns such probes into calls. Earlier versions single-step the nop, which takes longer than the
// breakpoint.
constexpr unsigned kMajor = 6;
constexpr unsigned kMinor = 18;

// A byte that is 1, and 0 in the children of this process. kNoPage: the breakpoint is used. nullptr: not known yet.
constexpr char kNoPage = 0;
constinit std::atomic<const char*> page;

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

const char* MakePage() {
  if (!HasKernel()) return &kNoPage;
  char* made = static_cast<char*>(MapAligned(kPageSize, kPageSize));
  if (made == nullptr) return &kNoPage;
  if (SystemCall(SYS_madvise, reinterpret_cast<long>(made), kPageSize, MADV_WIPEONFORK) != 0) {
    Unmap(made, kPageSize);
    return &kNoPage;
  }
  *made = 1;
  return made;
}

[[gnu::cold, gnu::noinline]] const char* FindPage() {
  const char* made = MakePage();
  const char* before = nullptr;
  // Release: the page is filled before other threads can find it.
  if (page.compare_exchange_strong(before, made, std::memory_order_acq_rel)) return made;
  if (made != &kNoPage) Unmap(const_cast<char*>(made), kPageSize);
  return before;
}

}  // namespace

bool CanUseCallSite() {
  const char* known = page.load(std::memory_order_acquire);
  if (known == nullptr) [[unlikely]]
    known = FindPage();
  // Volatile: the kernel clears it.
  return *static_cast<const volatile char*>(known) != 0;
}

}  // namespace heaptap
