// SPDX-License-Identifier: Apache-2.0
//
// The collector's side of the control block (allocator/include/heaptap/contract.h): finds, checks and writes it.
#ifndef HEAPTAP_USERSPACE_PROCESS_CONTROL_BLOCK_H_
#define HEAPTAP_USERSPACE_PROCESS_CONTROL_BLOCK_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "heaptap/contract.h"
#include "userspace/elf/file.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/handle.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/frames.h"

namespace heaptap::process {

// What a control block says about its process, within bounds.
struct ControlFacts {
  profile::AddressRange allocator = {};  // the allocator's code
  uint32_t lg_sample = 0;                // the process's own rate
  uint32_t max_frames = 0;
  bool raw = false;
  bool prof_leak = false;  // it wants to know what is live at its end
};
ControlFacts FactsOf(const heaptap_control& control);

// Whether the library is libheaptap-guest.so. Its statistics do not describe the process's memory.
bool IsGuest(const heaptap_control& control);
// The name of the process's allocator, in printable ASCII: "heaptap", or "guest over jemalloc 5.3.0".
std::string AllocatorName(const heaptap_control& control);

// Where an allocator's file has its control block.
struct ControlPlace {
  uint64_t address = 0;                     // link-time
  std::vector<elf::Segment> segments = {};  // the executable PT_LOAD segments
};
// Finds the block by its symbol in the file open at `fd`. NotFound: it has none.
absl::StatusOr<ControlPlace> FindControlPlace(int fd);

// The address of the control block in a process that has mapped the file; `mapping` is one of the mappings. NotFound:
// the mapping belongs to no executable segment.
absl::StatusOr<uint64_t> ControlAddress(const ControlPlace& place, const elf::Mapping& mapping);
// FindControlPlace and ControlAddress in one call.
absl::StatusOr<uint64_t> FindControl(int fd, const elf::Mapping& mapping);

// All that the control block says about its allocator.
profile::AllocatorFigures AllocatorFiguresOf(const heaptap_control& control);

// Checks magic, version and size; all other fields are the process's claims. NotFound: the library has not started, or
// takes no samples. InvalidArgument: this is not a control block, or it has another version.
absl::Status CheckControl(const heaptap_control& control, pid_t pid);

// Reads and checks the control block at `address`.
absl::StatusOr<heaptap_control> ReadControl(const Handle& process, uint64_t address);

// Writes to the control block that `collector` records the process, whether it follows children, and the rate
// (HEAPTAP_NO_RATE: the process's own). Writes nothing if there is no control block (ReadControl).
absl::Status TakeControl(const Handle& process, uint64_t address, uint32_t lg_sample, uint32_t follows,
                         pid_t collector);
// Undoes TakeControl, and takes back a rate that heaptap:rate has told, unless another collector has taken over.
absl::Status ReleaseControl(const Handle& process, uint64_t address, pid_t collector);

// Answers HEAPTAP_ASK_TABLES. Writes nothing if there is no control block (ReadControl).
absl::Status WriteTablesReady(const Handle& process, uint64_t address, uint32_t asked);

// Switches prof.active. Writes nothing if there is no control block (ReadControl).
absl::Status WriteActive(const Handle& process, uint64_t address, bool active);
// Sets the rate that overrides the process's own (HEAPTAP_NO_RATE: none), without a change of collector. Writes nothing
// if there is no control block (ReadControl).
absl::Status WriteRate(const Handle& process, uint64_t address, uint32_t lg_sample);

// The name (/proc/PID/comm) by which collectors recognise each other, whatever their file is called. main sets it.
inline constexpr char kCollectorName[] = "heaptap";

// The PID of another living collector that records the process, 0 if none.
pid_t OtherCollector(const heaptap_control& control);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_CONTROL_BLOCK_H_
