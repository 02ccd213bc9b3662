// SPDX-License-Identifier: Apache-2.0
//
// Recorded processes that move the code of a file to anonymous memory at its own address (process/moved_code.h). Not
// thread safe.
#ifndef HEAPTAP_USERSPACE_SPACES_MOVED_CODE_H_
#define HEAPTAP_USERSPACE_SPACES_MOVED_CODE_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "userspace/bpf/mapping_events.h"
#include "userspace/crews/looks.h"
#include "userspace/elf/mappings.h"
#include "userspace/spaces/address_spaces.h"

namespace heaptap::recording {

class MovedCode {
 public:
  // Both must outlive this object.
  MovedCode(worker::Looks& orders, AddressSpaces& spaces) : orders_(orders), spaces_(spaces) {}

  // Applies a mapping event (AddressSpaces::Apply). If a recorded process now has an anonymous mapping where a file's
  // code was before, the process is looked at. When the look has found that the mapping holds the code, it becomes a
  // mapping of the file. A message says this once for each file, because the kernel finds no unwind tables for the code
  // there.
  bool Apply(const bpf::MappingEvent& event);
  // Whether a look at the process is under way.
  bool IsLooking(pid_t pid) const { return looking_.contains(pid); }

  // To be called before each batch of mapping events: within a batch, a process is looked at once.
  void BeginBatch() { of_batch_.clear(); }

 private:
  // An anonymous mapping, and what was there before.
  struct Place {
    uint64_t start;
    elf::Mapping file;
  };
  struct Look {
    std::vector<Place> places;                // that wait for it
    std::vector<elf::Mapping> mappings = {};  // as found
    bool is_over = false;
  };
  // Where the event maps no file: the latest mapping of a file that the process has or had there.
  std::optional<elf::Mapping> FileBefore(const bpf::MappingEvent& event) const;
  void LookAt(pid_t pid, Place place);
  void Name(pid_t pid, const Place& place, const std::vector<elf::Mapping>& mappings);

  worker::Looks& orders_;
  AddressSpaces& spaces_;
  std::map<pid_t, std::shared_ptr<Look>> of_batch_;   // null: no further look
  std::multiset<pid_t> looking_;                      // looks under way
  std::map<pid_t, int> looks_;                        // at each process
  std::set<std::pair<pid_t, std::string>> reported_;  // files with a message already printed
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_SPACES_MOVED_CODE_H_
