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

  // Applies a mapping event (AddressSpaces::Apply). If a recorded process has an anonymous mapping now where a file's
  // code was before, it is looked at. The mapping becomes one of the file when the look has found that it holds the
  // code. That is said once for each file, because the kernel finds no unwind tables for it there.
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
  // The latest mapping of a file that a process has or had where the event maps no file.
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
