// SPDX-License-Identifier: Apache-2.0
//
// Looks up names for a profile's addresses in the files of this machine that the process had mapped. A file that was
// replaced or written since has other functions at these addresses and is skipped: device, inode and build-id must be
// those of the profile, as far as it has them, and a file without a build-id must not have changed since.
//
// A profile can name any path, so only regular files are opened, and a confined process reads them
// (crews/symbolizer.h). Not thread safe.
#ifndef HEAPTAP_USERSPACE_CLI_SUBJECTS_LOCAL_NAMES_H_
#define HEAPTAP_USERSPACE_CLI_SUBJECTS_LOCAL_NAMES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/cli/subjects/debuginfod.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/crews/symbolizer.h"
#include "userspace/formats/jeprof_symbols_reader.h"
#include "userspace/process/maps.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/source_frames.h"
#include "userspace/symbolize/answer.h"

namespace heaptap::cli {

// Where the files of the profile's machine are, if not in their own places here.
struct NamePlaces {
  // A folder that holds a copy of that machine's files under their paths; "": none. Where the profile has no build-id,
  // these files are taken as they are: nothing tells whether the process had mapped these files.
  std::string sysroot;
  std::string symbols;  // a folder of debug files, laid out like /usr/lib/debug, which it replaces; "": none
  // Whether missing files are fetched from servers (debuginfod.h): debug files, and files that the profile knows by
  // their build-id.
  bool debuginfod = false;
  bool show_progress = false;  // on a terminal
};

// Adds --sysroot, --symbols and --debuginfod.
void AddPlacesOptions(Command command, NamePlaces& places);
void AddDebuginfodOption(Command command, NamePlaces& places);
// Whether names can be looked up there: the errors of Debuginfod::Check.
absl::Status CheckPlaces(const NamePlaces& places);

class LocalNames {
 public:
  // Looks up all call addresses of the profile but those in `known`, the symbols of its dump.
  explicit LocalNames(const profile::Profile& profile, const NamePlaces& places = {}, formats::Symbols known = {});

  // The names found; valid as long as this object.
  profile::FindSourceFrames Find() const;
  // Paths of needed files that are missing or were replaced.
  const std::set<std::string>& missing() const { return missing_; }
  // Paths of files whose debug information was not read, by the reason: lines and inlined functions are missing.
  const std::map<symbolize::Gap, std::set<std::string>>& gaps() const { return gaps_; }
  // A line for each file that could not be fetched.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  absl::StatusOr<process::MappedFile> Open(const elf::Mapping& mapping, const NamePlaces& places,
                                           Debuginfod* debuginfod);
  void LookUp(worker::Symbolizer& symbolizer, const worker::JobFile& file, absl::Span<const uint64_t> addresses);

  const std::optional<absl::Time> time_;  // of the profile
  formats::Symbols frames_;
  std::set<std::string> missing_;
  std::map<symbolize::Gap, std::set<std::string>> gaps_;
  std::vector<std::string> problems_;
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_SUBJECTS_LOCAL_NAMES_H_
