// SPDX-License-Identifier: Apache-2.0
//
// Recorded processes that move the code of a file to anonymous memory at its own address (process/moved_code.h). Not
// thread safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_MOVED_CODE_H_
#define HEAPTAP_USERSPACE_RECORDING_MOVED_CODE_H_

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "userspace/bpf/mapping_events.h"
#include "userspace/elf/mappings.h"
#include "userspace/recording/address_spaces.h"
#include "userspace/worker/hands.h"

namespace heaptap::recording {

class MovedCode {
 public:
  // Both must outlive this object.
  MovedCode(worker::Hands& hands, const AddressSpaces& spaces) : hands_(hands), spaces_(spaces) {}

  // Makes an anonymous mapping one of the file whose code it holds, where a file's code was before. Returns whether it
  // was such a mapping. Says once for each file that it has moved, because the kernel finds no unwind tables for it
  // there.
  bool Name(bpf::MappingEvent& event);

  // To be called before each batch of mapping events: within a batch, a process is looked at once.
  void BeginBatch() { now_.clear(); }

 private:
  bool HadFile(const bpf::MappingEvent& event) const;
  const std::vector<elf::Mapping>& MappingsOf(pid_t pid);

  worker::Hands& hands_;
  const AddressSpaces& spaces_;
  std::map<pid_t, std::vector<elf::Mapping>> now_;
  std::map<pid_t, int> looks_;                        // at each process
  std::set<std::pair<pid_t, std::string>> reported_;  // files with a message already printed
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_MOVED_CODE_H_
