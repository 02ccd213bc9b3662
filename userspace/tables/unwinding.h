// SPDX-License-Identifier: Apache-2.0
//
// Serves the kernel's unwinding: enters the files of recorded processes, answers the questions for tables, and finishes
// raw stacks. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_TABLES_UNWINDING_H_
#define HEAPTAP_USERSPACE_TABLES_UNWINDING_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "bpf/events.h"
#include "userspace/base/clock.h"
#include "userspace/bpf/mapping_events.h"
#include "userspace/bpf/unwind_maps.h"
#include "userspace/elf/mappings.h"
#include "userspace/spaces/address_spaces.h"
#include "userspace/spaces/moved_code.h"
#include "userspace/spaces/seen_file.h"
#include "userspace/tables/raw_stacks.h"
#include "userspace/tables/unwind_tables.h"

namespace heaptap::recording {

class Unwinding {
 public:
  // Tells a process that waits for the tables of its mappings that they are there. `asked`: its question.
  using Answer = std::function<void(uint64_t process_id, uint32_t asked)>;
  // `means` and `spaces` must outlive this object. `budget`: as for UnwindTables.
  Unwinding(const UnwindTables::Means& means, AddressSpaces& spaces, uint64_t budget, Answer answer);

  UnwindTables& tables() { return tables_; }
  const UnwindTables& tables() const { return tables_; }

  // To be called before each batch of events: finishes what waited for tables that have been read since.
  void BeginBatch();
  void HandleTablesRead();

  // A recorded process has mapped a file.
  void HandleMapping(const bpf::MappingEvent& event);
  // Code that recorded processes have moved out of its file.
  MovedCode& moved_code() { return moved_code_; }
  // An eBPF program has met an unknown file. `news`: mapping events that have not been handled yet.
  void HandleTableWanted(const heaptap_event& event, const std::vector<bpf::MappingEvent>& news);
  // The process waits for the tables of its mappings. Call it after all mappings before the question have been handled.
  void HandleQuestion(uint64_t process_id, pid_t pid, uint32_t asked);
  // `space`: of the process at the time of the stack.
  void HandleRawStack(bpf::RawStack stack, pid_t pid, std::shared_ptr<const AddressSpace> space);
  // Says which builds of its files a process has mapped, as far as that is known by now (AddressSpaces::SetBuildId).
  void IdentifyFiles(pid_t pid);
  // To be called when the books of the process are closed.
  void Forget(uint64_t process_id) { asked_.erase(process_id); }

  // Whether a profile of the process should wait for stacks that wait for tables.
  bool IsWorthWaiting(uint64_t process_id, base::Instant now) const { return stacks_.IsWorthWaiting(process_id, now); }
  bool HasWaitingStacks() const { return !stacks_.empty(); }
  // Whether no table is being read, and nothing waits for one.
  bool IsSettled() const {
    return !tables_.IsReading() && !tables_.kernel().IsLoading() && stacks_.empty() && asked_.empty();
  }

 private:
  // To be called when the process maps the file: another build may have its inode later.
  void IdentifyFile(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping);

  AddressSpaces& spaces_;
  const Answer answer_;
  UnwindTables tables_;
  MovedCode moved_code_;
  RawStacks stacks_;
  struct Question {
    pid_t pid;
    uint32_t asked;
  };
  std::map<uint64_t, Question> asked_;  // questions that wait, by process id
  uint64_t tables_read_ = 0;            // at the last HandleTablesRead
  // Mappings whose files are being read, by PID and address.
  std::map<std::pair<pid_t, uint64_t>, std::pair<heaptap_file_key, elf::Mapping>> unidentified_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TABLES_UNWINDING_H_
