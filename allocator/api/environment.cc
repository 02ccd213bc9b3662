// SPDX-License-Identifier: Apache-2.0
//
// secure_getenv, for the sake of one caller: a program that is linked with libjemalloc.so loads that library beside a
// preloaded heaptap, though all its calls come here. That library's constructor still reads MALLOC_CONF, by
// secure_getenv, and does what it asks for: a final dump over ours, a second leak summary, statistics of an allocator
// that nobody uses. So it gets another MALLOC_CONF, which switches all that off. That wins over the symbol malloc_conf
// and over /etc/malloc.conf, which jemalloc reads before it. (malloc_conf_2_conf_harder, which it reads after it, is
// not overruled.)
//
// Where no options are given at all there is nothing to switch off, and it is told so: a jemalloc that was built
// without profiling would complain of options that it does not know.
//
// Everybody else gets what libc's function gives. It is read from `environ` and not by getenv: a program may have
// wrapped both functions under one lock, as Firefox has, and holds it here.
//
// May be called by any thread at any time, before this library's constructor too; allocates nothing.
#include <malloc.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "allocator/api/symbols.h"
#include "allocator/process/option_sources.h"
#include "allocator/process/process.h"

namespace {

// Only what jemalloc 5.3.0 knows, as Debian has it: an unknown option would make it complain.
constexpr char kQuiet[] =
    "abort_conf:false,confirm_conf:false,prof:false,prof_active:false,prof_final:false,prof_leak:false,"
    "prof_leak_error:false,prof_gdump:false,lg_prof_interval:-1,stats_print:false,stats_interval:-1,"
    "background_thread:false";

}  // namespace

// malloc_usable_size tells, since, other than malloc's, its address is hardly ever taken by a program, which would make
// it an address in the program.
bool heaptap::IsInUse() { return IsInAllocator(reinterpret_cast<const void*>(&malloc_usable_size)); }

// Where heaptap is not in use, it has to keep out of the other allocator's options.
HEAPTAP_C_EXPORT char* secure_getenv(const char* name) noexcept {
  if (strcmp(name, "MALLOC_CONF") == 0 && heaptap::IsInUse()) {
    return heaptap::HasOptions() ? const_cast<char*>(kQuiet) : nullptr;
  }
  if (getauxval(AT_SECURE) != 0) return nullptr;
  return const_cast<char*>(heaptap::FindVariable(environ, name));
}
