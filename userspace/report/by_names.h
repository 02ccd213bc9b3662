// SPDX-License-Identifier: Apache-2.0
//
// Profiles of several processes, runs or builds in one made-up address space, so that they can be compared.
//
// In it, functions of the same name have the same address, whatever file and line they are in. Names are as in reports:
// without parameters, template arguments and the hashes of Rust, which differ between builds. Call paths have no frames
// that only pass an allocation on or start a thread: whether these are inlined differs between builds, too. Call paths
// with the same names are one. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_REPORT_BY_NAMES_H_
#define HEAPTAP_USERSPACE_REPORT_BY_NAMES_H_

#include <cstdint>
#include <map>
#include <string>

#include "userspace/formats/jeprof_symbols_reader.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/source_frames.h"

namespace heaptap::report {

class ByNames {
 public:
  // Profiles of live memory only, because the allocated memory of one process is not an earlier state of another
  // process.
  struct Made {
    profile::Profile profile = {};
    formats::Symbols symbols = {};  // of all its addresses
  };
  // Profiles that one object makes can be compared with each other, and with no others.
  Made Make(const profile::Profile& profile, const profile::FindSourceFrames& find);

 private:
  uint64_t AddressOf(const std::string& function, const std::string& library);

  std::map<std::string, uint64_t> addresses_;  // by function
  std::map<std::string, uint64_t> libraries_;  // numbers from 1, by path
};

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_BY_NAMES_H_
