// SPDX-License-Identifier: Apache-2.0
//
// Which script an interpreter runs. All programs of one interpreter have its name, but people look for the name of
// their script.
//
// Thread-safe. The texts are those of Facts and StartFacts: they may hold any byte, and so may the results.
#ifndef HEAPTAP_USERSPACE_PROCESS_SCRIPT_NAME_H_
#define HEAPTAP_USERSPACE_PROCESS_SCRIPT_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace heaptap::process {

// Whether the program at `executable` runs scripts.
bool IsInterpreter(absl::string_view executable);

// The last part of the path of the script, or the name of the module or the class, that `arguments` tells the
// interpreter at `executable` to run. "": there is none, as in an interactive session or with the text of a program in
// the command line; the interpreter is not known; or the process has named itself: `command` is neither the name of the
// interpreter nor that of the script. At most 247 bytes, like the name of a unit (process/service_name.h).
std::string ScriptName(absl::string_view executable, absl::string_view command,
                       const std::vector<std::string>& arguments);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_SCRIPT_NAME_H_
