// SPDX-License-Identifier: Apache-2.0
//
// secure_getenv is interposed because of one caller. A program that is linked with libjemalloc.so loads that library
// next to a preloaded heaptap, although heaptap serves all its calls. The constructor of libjemalloc.so still reads
// MALLOC_CONF with secure_getenv and obeys it: it would write a final dump over heaptap's, and print a second leak
// summary and the statistics of an unused allocator. So it gets another MALLOC_CONF, which disables all this. This
// value overrides the symbol malloc_conf and /etc/malloc.conf, which jemalloc reads before it, but not
// malloc_conf_2_conf_harder, which jemalloc reads after it.
//
// Without any options there is nothing to disable, and the variable reads as not set: a jemalloc that was built
// without profiling would complain about unknown options.
//
// For all other variables the result is the same as from libc's function. They are read from `environ` and not with
// getenv: a program may have wrapped both functions under one lock, as Firefox has, and may hold this lock when it
// calls here.
//
// Any thread, any time, even before this library's constructor. Allocates nothing.
#include <malloc.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "allocator/api/symbols.h"
#include "allocator/process/option_sources.h"
#include "allocator/process/process.h"

namespace {

// Only options of Debian's jemalloc 5.3.0, which complains about unknown ones.
constexpr char kQuiet[] =
    "abort_conf:false,confirm_conf:false,prof:false,prof_active:false,prof_final:false,prof_leak:false,"
    "prof_leak_error:false,prof_gdump:false,lg_prof_interval:-1,stats_print:false,stats_interval:-1,"
    "background_thread:false";

}  // namespace

// Looks at malloc_usable_size and not at malloc. If a program takes the address of a function, the address may be one
// in the program, and programs hardly ever take the address of malloc_usable_size.
bool heaptap::IsInUse() { return IsInAllocator(reinterpret_cast<const void*>(&malloc_usable_size)); }

// If heaptap is not in use, MALLOC_CONF belongs to another allocator and is left alone.
HEAPTAP_C_EXPORT char* secure_getenv(const char* name) noexcept {
  if (strcmp(name, "MALLOC_CONF") == 0 && heaptap::IsInUse()) {
    return heaptap::HasOptions() ? const_cast<char*>(kQuiet) : nullptr;
  }
  if (getauxval(AT_SECURE) != 0) return nullptr;
  return const_cast<char*>(heaptap::FindVariable(environ, name));
}
