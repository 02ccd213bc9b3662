// SPDX-License-Identifier: Apache-2.0
//
// The collector's side of the control block (allocator/include/heaptap/contract.h): finds, checks and writes it.
#ifndef HEAPTAP_USERSPACE_SERVICE_CONTROL_BLOCK_H_
#define HEAPTAP_USERSPACE_SERVICE_CONTROL_BLOCK_H_

#include <sys/types.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "heaptap/contract.h"
#include "userspace/elf/mappings.h"
#include "userspace/profile/frames.h"
#include "userspace/service/process_handle.h"

namespace heaptap::service {

// What a control block says about its process, within bounds.
struct ControlFacts {
  profile::AddressRange allocator = {};  // the allocator's code
  uint32_t lg_sample = 0;                // the process's own rate
  uint32_t max_frames = 0;
  bool raw = false;
};
ControlFacts FactsOf(const heaptap_control& control);

// Finds the control block by its symbol in a file with probes that a process has mapped: `fd` is the file, `mapping`
// one of its mappings. Returns the address in the process. NotFound: the file has none.
absl::StatusOr<uint64_t> FindControl(int fd, const elf::Mapping& mapping);

// Checks magic, version and size; all other fields are the process's claims. InvalidArgument if this is no control
// block, or has another version.
absl::Status CheckControl(const heaptap_control& control, pid_t pid);

// Reads and checks the control block at `address`.
absl::StatusOr<heaptap_control> ReadControl(const ProcessHandle& process, uint64_t address);

// Writes to the control block that this collector records the process, whether it follows children, and the rate
// (HEAPTAP_NO_RATE: the process's own). Writes nothing if there is no control block (ReadControl).
absl::Status TakeControl(const ProcessHandle& process, uint64_t address, uint32_t lg_sample, bool follows);
// Undoes TakeControl, unless another collector has taken over.
absl::Status ReleaseControl(const ProcessHandle& process, uint64_t address);

// Answers HEAPTAP_ASK_TABLES. Writes nothing if there is no control block (ReadControl).
absl::Status WriteTablesReady(const ProcessHandle& process, uint64_t address, uint32_t asked);

// Switches prof.active. Writes nothing if there is no control block (ReadControl).
absl::Status WriteActive(const ProcessHandle& process, uint64_t address, bool active);
// Sets the rate that overrides the process's own (HEAPTAP_NO_RATE: none), without a change of collector. Writes nothing
// if there is no control block (ReadControl).
absl::Status WriteRate(const ProcessHandle& process, uint64_t address, uint32_t lg_sample);

// The name (/proc/PID/comm) by which collectors recognise each other, whatever their file is called. main sets it.
inline constexpr char kCollectorName[] = "heaptap";

// The PID of another living collector that records the process, 0 if none.
pid_t OtherCollector(const heaptap_control& control);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_CONTROL_BLOCK_H_
