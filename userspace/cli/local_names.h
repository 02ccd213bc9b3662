// SPDX-License-Identifier: Apache-2.0
//
// Names of a profile's addresses from the files of this machine: those that the process had mapped, if they are still
// at their paths. A file that has taken the place of one has other functions at these addresses; it is left out.
//
// A profile can name any path, so nothing but a regular file is opened, and it is read in a confined process
// (symbolize/symbolizer.h). Not thread safe.
#ifndef HEAPTAP_USERSPACE_CLI_LOCAL_NAMES_H_
#define HEAPTAP_USERSPACE_CLI_LOCAL_NAMES_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "userspace/elf/mappings.h"
#include "userspace/export/source_frames.h"

namespace heaptap::cli {

class LocalNames {
 public:
  // Looks up all `addresses` (exporter::CallAddress) in `mappings`, which are by address.
  LocalNames(absl::Span<const elf::Mapping> mappings, std::vector<uint64_t> addresses);

  // What was found; valid as long as this.
  exporter::FindSourceFrames Find() const;
  // Paths of files with addresses that could not be used: not there, or not those that were mapped.
  const std::set<std::string>& missing() const { return missing_; }

 private:
  absl::flat_hash_map<uint64_t, std::vector<exporter::SourceFrame>> frames_;
  std::set<std::string> missing_;
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_LOCAL_NAMES_H_
