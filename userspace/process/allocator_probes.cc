// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/allocator_probes.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "heaptap/contract.h"

namespace heaptap::process {
namespace {

// The probes that the collector uses, with the number of their arguments.
struct ContractProbe {
  absl::string_view provider;
  absl::string_view name;
  int arguments;
};
constexpr ContractProbe kContractProbes[] = {
    {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROBE_ALLOC, 3}, {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROBE_FREE, 1},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_FREES, 2},      {HEAPTAP_PROVIDER, HEAPTAP_PROBE_START, 1},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_DUMP, 1},       {HEAPTAP_PROVIDER, HEAPTAP_PROBE_THREAD_NAME, 1},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_HEAP_ALLOC, 5}, {HEAPTAP_PROVIDER, HEAPTAP_PROBE_HEAP_FREE, 2},
};

// A perf event has 32 bits for the offset.
constexpr uint64_t kMaxSemaphoreOffset = UINT32_MAX;

}  // namespace

bool AllocatorProbes::HasPendingFrees() const {
  return std::any_of(sites.begin(), sites.end(), [](const elf::ProbeSite& site) {
    return site.provider == HEAPTAP_PROVIDER && site.name == HEAPTAP_PROBE_FREES;
  });
}

bool AllocatorProbes::HasSamples() const {
  bool alloc = false;
  bool free = false;
  for (const elf::ProbeSite& site : sites) {
    if (site.provider != HEAPTAP_PROVIDER_OTEL) continue;
    alloc |= site.name == HEAPTAP_PROBE_ALLOC;
    free |= site.name == HEAPTAP_PROBE_FREE;
  }
  return alloc && free;
}

absl::StatusOr<AllocatorProbes> ReadAllocatorProbes(int fd) {
  constexpr absl::string_view kProviders[] = {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROVIDER};
  absl::StatusOr<std::vector<elf::ProbeSite>> sites = elf::ReadProbes(fd, kProviders);
  if (!sites.ok()) return sites.status();
  for (const elf::ProbeSite& site : *sites) {
    for (const ContractProbe& probe : kContractProbes) {
      if (site.provider != probe.provider || site.name != probe.name) continue;
      if (site.semaphore_file_offset > kMaxSemaphoreOffset) {
        return absl::InvalidArgumentError(
            absl::StrCat("the semaphore of probe ", site.provider, ":", site.name, " lies beyond 4 GiB in the file"));
      }
      if (elf::ArgumentsInRegisters(site.arguments, probe.arguments)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("probe ", site.provider, ":", site.name, " passes its arguments as \"", site.arguments,
                       "\"; they must be in the SysV argument registers (rdi, rsi, rdx)"));
    }
  }
  return AllocatorProbes{*std::move(sites)};
}

}  // namespace heaptap::process
