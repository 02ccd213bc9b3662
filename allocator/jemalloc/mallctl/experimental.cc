// SPDX-License-Identifier: Apache-2.0
//
// experimental.*: the records of recent samples, and hooks for samples and dumps.
#include <errno.h>
#include <sys/types.h>

#include <atomic>

#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/process/process.h"
#include "allocator/profiling/hooks.h"
#include "allocator/profiling/records.h"

namespace heaptap {
namespace {

bool Prof() { return ProcessConfiguration().prof; }

// --- prof_recent -----------------------------------------------------------------------------------------------------

int RecentAllocMax(const Request& request) {
  if (!Prof()) return ENOENT;
  ssize_t old_value = RecentMaximum();
  ssize_t new_value = old_value;
  int error = request.Write(&new_value);
  if (error != 0) return error;
  if (new_value < -1) return EINVAL;
  if (request.has_new()) SetRecentMaximum(new_value);
  return request.Read(old_value);
}

int RecentAllocDump(const Request& request) {
  struct Writer {
    void (*write)(void* opaque, const char* text);
    void* opaque;
  };
  if (!Prof()) return ENOENT;
  Writer writer;
  int error = request.RefuseOld();
  if (error == 0) error = request.Require(&writer);
  return error != 0 ? error : DumpRecent(writer.write, writer.opaque);
}

constexpr Node kRecentNodes[] = {
    Leaf("alloc_max", RecentAllocMax),
    Leaf("alloc_dump", RecentAllocDump),
};
constexpr NodeList kRecent = ListOf(kRecentNodes);

// --- hooks -----------------------------------------------------------------------------------------------------------

// Never called, since the process does not unwind stacks. Kept for programs that set it and read it back.
using BacktraceHook = void (*)(void** frames, unsigned* count, unsigned maximum);
constinit std::atomic<BacktraceHook> backtrace_hook{};

// The call must read or set the hook. `may_be_none`: it may be set to nullptr.
template <typename Function>
int ExchangeHook(const Request& request, std::atomic<Function>* stored, bool may_be_none) {
  if (request.old_value == nullptr && !request.has_new()) return EINVAL;
  Function hook = stored->load(std::memory_order_relaxed);
  int error = request.Read(hook);
  if (error != 0 || !request.has_new()) return error;
  if (!Prof()) return ENOENT;
  error = request.Write(&hook);
  if (error != 0) return error;
  if (!may_be_none && hook == nullptr) return EINVAL;
  // Release: a thread that calls the hook sees what the program wrote before it set the hook.
  stored->store(hook, std::memory_order_release);
  return 0;
}

int BacktraceHookHandler(const Request& request) { return ExchangeHook(request, &backtrace_hook, false); }
int DumpHookHandler(const Request& request) { return ExchangeHook(request, &hooks.dump, true); }
int SampleHookHandler(const Request& request) { return ExchangeHook(request, &hooks.sample, true); }
int SampleFreeHookHandler(const Request& request) { return ExchangeHook(request, &hooks.sample_free, true); }

constexpr Node kHookNodes[] = {
    Leaf("prof_backtrace", BacktraceHookHandler),
    Leaf("prof_dump", DumpHookHandler),
    Leaf("prof_sample", SampleHookHandler),
    Leaf("prof_sample_free", SampleFreeHookHandler),
};
constexpr NodeList kHooks = ListOf(kHookNodes);

constexpr Node kExperimentalNodes[] = {
    Inner("hooks", kHooks),
    Inner("prof_recent", kRecent),
};

}  // namespace

constexpr NodeList kExperimentalNames = ListOf(kExperimentalNodes);

}  // namespace heaptap
