// SPDX-License-Identifier: Apache-2.0
//
// prof.*: the profile of the process. Without opt.prof nothing can be enabled or requested, and switches read as off.
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/core/control.h"
#include "allocator/core/size_class.h"
#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/jemalloc/snapshot.h"
#include "allocator/process/process.h"
#include "allocator/profiling/dump.h"
#include "allocator/profiling/profiling.h"
#include "allocator/profiling/records.h"
#include "allocator/sampling/sampler.h"
#include "allocator/sampling/statistics.h"

namespace heaptap {
namespace {

bool Prof() { return ProcessConfiguration().prof; }

int Active(const Request& request) {
  bool old_value = Prof() && IsProfilingActive();
  bool new_value = old_value;
  int error = request.Write(&new_value);
  if (error != 0) return error;
  if (!Prof() && new_value) return ENOENT;
  if (Prof() && request.has_new()) SetProfilingActive(new_value);
  return request.Read(old_value);
}

// A switch that cannot be set without opt.prof.
template <bool (*kGet)(), void (*kSet)(bool)>
int Switch(const Request& request) {
  if (!Prof()) return request.has_new() ? ENOENT : request.Read(false);
  bool old_value = kGet();
  bool new_value = old_value;
  int error = request.Write(&new_value);
  if (error != 0) return error;
  if (request.has_new()) kSet(new_value);
  return request.Read(old_value);
}

// Reads the new value, a path or prefix. *path is nullptr if the caller gave none.
int ReadPath(const Request& request, const char** path) {
  *path = nullptr;
  if (!Prof()) return ENOENT;
  int error = request.RefuseOld();
  return error != 0 ? error : request.Write(path);
}

int DumpProfile(const Request& request) {
  const char* path;
  int error = ReadPath(request, &path);
  return error != 0 ? error : Dump(HEAPTAP_DUMP_MANUAL, path);
}

int Prefix(const Request& request) {
  const char* prefix;
  int error = ReadPath(request, &prefix);
  if (error != 0) return error;
  return prefix == nullptr ? EFAULT : SetDumpPrefix(prefix);
}

int Reset(const Request& request) {
  if (!Prof()) return ENOENT;
  int error = request.RefuseOld();
  size_t lg_sample = 0;
  if (error == 0) error = request.Write(&lg_sample);
  if (error != 0) return error;
  if (request.has_new()) {
    ResetProfile(lg_sample);
  } else {
    ResetProfile();
  }
  return 0;
}

size_t LgSample() { return Prof() ? control::EffectiveLgInterval() : 0; }

uint64_t Interval() { return ProcessConfiguration().prof_interval; }

int LogStart(const Request& request) {
  const char* path;
  int error = ReadPath(request, &path);
  return error != 0 ? error : StartLog(path);
}

// Ignores all arguments, as jemalloc does.
int LogStop(const Request&) { return Prof() ? StopLog() : ENOENT; }

// --- prof.stats ------------------------------------------------------------------------------------------------------

bool CountsSamples() { return Prof() && ProcessConfiguration().prof_stats; }

bool IsCountedBin(size_t index) { return CountsSamples() && index < kSmallClasses; }
bool IsCountedExtent(size_t index) { return CountsSamples() && index < kExtentClasses; }

template <unsigned kFirstClass, SampleStatistics LiveAndAccumulated::*kPart>
int SamplesOfClass(const Request& request) {
  unsigned size_class = kFirstClass + static_cast<unsigned>(request.mib[3]);
  return request.ReadOnly(ReadSampleStatistics(size_class).*kPart);
}

constexpr Node kBinNodes[] = {
    Leaf("live", SamplesOfClass<0, &LiveAndAccumulated::live>),
    Leaf("accum", SamplesOfClass<0, &LiveAndAccumulated::accumulated>),
};
constexpr NodeList kBins = IndexedListOf(kBinNodes, IsCountedBin);

constexpr Node kExtentNodes[] = {
    Leaf("live", SamplesOfClass<kSmallClasses, &LiveAndAccumulated::live>),
    Leaf("accum", SamplesOfClass<kSmallClasses, &LiveAndAccumulated::accumulated>),
};
constexpr NodeList kExtents = IndexedListOf(kExtentNodes, IsCountedExtent);

constexpr Node kStatisticsNodes[] = {
    Inner("bins", kBins),
    Inner("lextents", kExtents),
};
constexpr NodeList kStatistics = ListOf(kStatisticsNodes);

constexpr Node kProfNodes[] = {
    Shown("thread_active_init", Switch<AreNewThreadsSampled, SetNewThreadsSampled>),
    Shown("active", Active),
    Leaf("dump", DumpProfile),
    Shown("gdump", Switch<IsHighWaterDumped, SetHighWaterDumped>),
    Leaf("prefix", Prefix),
    Leaf("reset", Reset),
    Shown("interval", Result<Interval>),
    Shown("lg_sample", Result<LgSample>),
    Leaf("log_start", LogStart),
    Leaf("log_stop", LogStop),
    Inner("stats", kStatistics),
};

}  // namespace

constexpr NodeList kProfNames = ListOf(kProfNodes);

}  // namespace heaptap
