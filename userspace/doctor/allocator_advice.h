// SPDX-License-Identifier: Apache-2.0
//
// Which allocator a process uses, and how it can be profiled: conclusions from what its files and its start tell.
//
// Thread-safe. All texts are printable ASCII.
#ifndef HEAPTAP_USERSPACE_DOCTOR_ALLOCATOR_ADVICE_H_
#define HEAPTAP_USERSPACE_DOCTOR_ALLOCATOR_ADVICE_H_

#include <string>
#include <vector>

#include "userspace/process/malloc_traits.h"
#include "userspace/process/start_facts.h"

namespace heaptap::daemon {

// A file with code that the process has mapped.
struct CodeFile {
  std::string path = {};
  process::MallocTraits traits = {};
  bool is_program = false;  // the executable
  bool is_heaptap = false;  // a library of heaptap, which takes no samples in the process
};

struct Evidence {
  std::string program = {};          // the path of the executable
  std::string command = {};          // its name, as ps -o comm shows it
  std::vector<CodeFile> files = {};  // by address
  process::StartFacts start = {};
  std::string foreign = {};  // why the machine code of the executable is not ours: "it is a 32-bit program"; "": it is
  std::string allocator = {};  // the paths of our libraries
  std::string guest = {};
};

// Such as "glibc (/usr/lib/x86_64-linux-gnu/libc.so.6)".
std::string AllocatorInUse(const Evidence& evidence);

// What to do so that the process, which takes no samples now, can be recorded when it is started again.
std::string HowToProfile(const Evidence& evidence);

}  // namespace heaptap::daemon

#endif  // HEAPTAP_USERSPACE_DOCTOR_ALLOCATOR_ADVICE_H_
