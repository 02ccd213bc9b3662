// SPDX-License-Identifier: Apache-2.0
//
// Starts a program with libheaptap.so or libheaptap-guest.so.
#ifndef HEAPTAP_USERSPACE_PROCESS_PRELOAD_H_
#define HEAPTAP_USERSPACE_PROCESS_PRELOAD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heaptap::process {

// The allocator, or the guest of another allocator.
enum class Library { kAllocator, kGuest };

// The path of a library: next to this executable, or where `make install` puts it. FailedPrecondition: the library is
// in neither place, or LD_PRELOAD cannot contain its path.
absl::StatusOr<std::string> FindLibrary(Library which);
// The path for a message; a placeholder if the library is not found.
std::string PathToShow(Library which);

// Checks whether `library` can be added to LD_PRELOAD. InvalidArgument: LD_PRELOAD has the other library of heaptap, or
// another copy of the guest. A process can have only one.
absl::Status CheckPreload(Library which, const std::string& library);

// Sets the environment that children inherit: LD_PRELOAD, with the library before all others, and in HEAPTAP_CONF the
// collector's PID, the rate if it is given, and whether the collector gives areas.
void SetPreloadEnvironment(const std::string& library, std::optional<uint32_t> lg_sample, bool gives_areas = false);

// The entries of a value of LD_PRELOAD.
std::vector<std::string> SplitPreload(absl::string_view value);

// The absolute paths in the text of a file like /etc/ld.so.preload (ld.so(8)), which names libraries for every program
// of the machine. Paths with a token of the dynamic linker ($LIB) are left out.
std::vector<std::string> PathsInPreloadFile(absl::string_view text);
inline constexpr char kPreloadFile[] = "/etc/ld.so.preload";

// The files that a program will map when it starts, as far as they are known in advance: the executable, found like
// execvp(3) does, and, if it is dynamically linked, the libraries that its dynamic loader lists in this process's
// environment. Empty if the executable does not exist.
std::vector<std::string> FilesOfProgram(const std::string& command);

// Why an executable has no code that heaptap can record: "it is a 32-bit program". Empty if it has such code, or if
// that is unknown.
std::string WhyForeign(const std::string& path);

// Why no library of heaptap can be preloaded into a program ("it is statically linked", "it is a Go program ..."), or
// why a preloaded one would have no effect ("it has a malloc of its own"). The program is found like execvp(3) does.
// Empty if there is no such reason, or if the file is not an ELF file.
std::string WhyNotPreloadable(const std::string& command);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_PRELOAD_H_
