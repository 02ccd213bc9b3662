// SPDX-License-Identifier: Apache-2.0
//
// Starting a program with libheaptap.so in it.
#ifndef HEAPTAP_USERSPACE_SERVICE_PRELOAD_H_
#define HEAPTAP_USERSPACE_SERVICE_PRELOAD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heaptap::service {

// The path of libheaptap.so: beside this executable, or where `make install` puts it. FailedPrecondition: neither, or
// the path cannot stand in LD_PRELOAD.
absl::StatusOr<std::string> FindLibrary();

// Sets this process's environment, for children to inherit: LD_PRELOAD, and in HEAPTAP_CONF who records them and, if
// one is given, the rate.
void SetPreloadEnvironment(const std::string& library, std::optional<uint32_t> lg_sample);

// The files that a program will map when it starts, as far as they can be known before: the executable, found as
// execvp(3) does, and, if that is a dynamically linked ELF file, the libraries that its dynamic loader lists for it in
// this process's environment. Empty if there is no such file.
std::vector<std::string> FilesOfProgram(const std::string& command);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_PRELOAD_H_
