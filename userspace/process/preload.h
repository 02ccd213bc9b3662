// SPDX-License-Identifier: Apache-2.0
//
// Starts a program with libheaptap.so.
#ifndef HEAPTAP_USERSPACE_PROCESS_PRELOAD_H_
#define HEAPTAP_USERSPACE_PROCESS_PRELOAD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heaptap::process {

// The path of libheaptap.so: next to this executable, or where `make install` puts it. FailedPrecondition: the library
// is in neither place, or LD_PRELOAD cannot contain its path.
absl::StatusOr<std::string> FindLibrary();

// Sets the environment that children inherit: LD_PRELOAD, and in HEAPTAP_CONF the collector's PID and, if given, the
// rate.
void SetPreloadEnvironment(const std::string& library, std::optional<uint32_t> lg_sample);

// The files that a program will map when it starts, as far as they are known in advance: the executable, found like
// execvp(3) does, and, if it is dynamically linked, the libraries that its dynamic loader lists in this process's
// environment. Empty if the executable does not exist.
std::vector<std::string> FilesOfProgram(const std::string& command);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_PRELOAD_H_
