// SPDX-License-Identifier: Apache-2.0
//
// Tells the processes that map a file their sampling interval before their first allocation: attaches to one of the
// file's sites of heaptap:rate (contract.h), so that the kernel raises its semaphore in each of them.
//
// Not thread safe.
#ifndef HEAPTAP_USERSPACE_ATTACH_TOLD_RATES_H_
#define HEAPTAP_USERSPACE_ATTACH_TOLD_RATES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/pins.h"
#include "userspace/crews/errands.h"
#include "userspace/process/allocator_probes.h"
#include "userspace/spaces/seen_file.h"

namespace heaptap::recording {

class ToldRates {
 public:
  using File = uint64_t;  // ProbeFiles::File

  // All must outlive this object. With `pins`, what was told survives this object, and is taken over.
  ToldRates(const bpf::Books& books, worker::Errands& errands, const bpf::Pins* pins);
  ToldRates(const ToldRates&) = delete;
  ToldRates& operator=(const ToldRates&) = delete;

  // Sets what is told from now on: lg of the interval, or nothing. Returns the links that told something else. The
  // caller closes them, which takes some hundredths of a second for each. Tell attaches to their files again.
  std::vector<base::FileDescriptor> Set(std::optional<uint32_t> lg_sample);

  // Has a worker tell the processes of a file. `done` is called once, perhaps during this call. If the kernel refuses,
  // a line says so: the processes of the file then learn their interval after their first allocations. Returns the job;
  // kNoJob: `done` was called.
  worker::Errands::JobId Tell(const SeenFile& file, const process::AllocatorProbes& allocator,
                              std::function<void()> done);

  // Whether Tell has nothing to do for the file.
  bool IsTold(File file) const;

  // Tells the processes of the file nothing any more. Returns its links, to be closed.
  std::vector<base::FileDescriptor> Release(File file);

  // Removes all.
  void Clear();

 private:
  struct Told {
    uint32_t lg_sample = 0;
    base::FileDescriptor link = {};  // empty if taken over: then only the pin holds the link
  };
  void TakeOver();
  void HandleAttached(File file, uint32_t lg_sample, absl::string_view name, worker::Answer answer);

  const bpf::Books& books_;
  worker::Errands& errands_;
  const bpf::Pins* pins_;
  std::optional<uint32_t> wanted_ = {};
  std::map<File, Told> told_;
  std::set<File> without_;  // files that have no site for it, or that the kernel refuses
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_ATTACH_TOLD_RATES_H_
