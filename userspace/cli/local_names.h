// SPDX-License-Identifier: Apache-2.0
//
// Looks up names for a profile's addresses in the files of this machine that the process had mapped, which are known by
// device and inode, or by build-id. A file that was replaced since has other functions at these addresses and is
// skipped.
//
// A profile can name any path, so only regular files are opened, and a confined process reads them
// (worker/symbolizer.h). Not thread safe.
#ifndef HEAPTAP_USERSPACE_CLI_LOCAL_NAMES_H_
#define HEAPTAP_USERSPACE_CLI_LOCAL_NAMES_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "userspace/cli/command_line.h"
#include "userspace/export/jeprof_symbols_reader.h"
#include "userspace/export/source_frames.h"
#include "userspace/profile/profile.h"

namespace heaptap::cli {

// Where the files of the profile's machine are, if not in their own places here.
struct NamePlaces {
  // A folder that holds a copy of that machine's files under their paths; "": none. These files are taken as they are:
  // nothing tells whether they are those that the process had mapped.
  std::string sysroot;
  std::string symbols;  // a folder of debug files, laid out like /usr/lib/debug, which it replaces; "": none
};

// Adds --sysroot and --symbols.
void AddPlacesOptions(Command command, NamePlaces& places);

class LocalNames {
 public:
  // Looks up all call addresses of the profile but those in `known`, the symbols of its dump.
  explicit LocalNames(const profile::Profile& profile, const NamePlaces& places = {}, exporter::Symbols known = {});

  // The names found; valid as long as this object.
  exporter::FindSourceFrames Find() const;
  // Paths of needed files that are missing or were replaced.
  const std::set<std::string>& missing() const { return missing_; }

 private:
  exporter::Symbols frames_;
  std::set<std::string> missing_;
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_LOCAL_NAMES_H_
