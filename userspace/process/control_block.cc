// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/control_block.h"

#include <elf.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "userspace/base/messages.h"
#include "userspace/elf/file.h"
#include "userspace/elf/symbols.h"

namespace heaptap::process {
namespace {

template <typename T>
absl::Status WriteField(const Handle& process, uint64_t address, size_t offset, T value) {
  return process.Write(address + offset, &value, sizeof(value));
}

}  // namespace

absl::StatusOr<ControlPlace> FindControlPlace(int fd) {
  const absl::StatusOr<uint64_t> address = elf::FindDataSymbol(fd, HEAPTAP_CONTROL_SYMBOL);
  if (!address.ok()) return address.status();
  const absl::StatusOr<elf::File> file = elf::File::Open(fd);
  if (!file.ok()) return file.status();
  ControlPlace place = {.address = *address};
  std::ranges::copy_if(file->segments(), std::back_inserter(place.segments), [](const elf::Segment& segment) {
    return segment.type == PT_LOAD && (segment.flags & PF_X) != 0;
  });
  return place;
}

absl::StatusOr<uint64_t> FindControl(int fd, const elf::Mapping& mapping) {
  const absl::StatusOr<ControlPlace> place = FindControlPlace(fd);
  return place.ok() ? ControlAddress(*place, mapping) : place.status();
}

absl::StatusOr<uint64_t> ControlAddress(const ControlPlace& place, const elf::Mapping& mapping) {
  // The load bias is the address of the mapped segment minus its link address. Segments can begin in mid-page, mappings
  // cannot; both sides are taken at the mapping's file offset.
  for (const elf::Segment& segment : place.segments) {
    const uint64_t page_begin = segment.offset & ~uint64_t{4095};
    if (page_begin <= mapping.file_offset &&
        mapping.file_offset - segment.offset + (segment.offset - page_begin) < segment.file_size + 4096) {
      const uint64_t linked_at = segment.address - segment.offset + mapping.file_offset;
      return place.address + (mapping.start - linked_at);
    }
  }
  return absl::NotFoundError("the mapping belongs to no executable segment of the file");
}

bool IsGuest(const heaptap_control& control) { return control.host[0] != '\0'; }

std::string AllocatorName(const heaptap_control& control) {
  if (!IsGuest(control)) return "heaptap";
  const absl::string_view host(control.host, strnlen(control.host, sizeof(control.host)));
  return absl::StrCat("guest over ", base::AsciiOnly(host));
}

profile::AllocatorFigures AllocatorFiguresOf(const heaptap_control& control) {
  const bool has_rate = control.collector_lg_sample != HEAPTAP_NO_RATE;
  profile::AllocatorFigures figures = {.name = AllocatorName(control),
                                       .options = control.options,
                                       .active = control.active != 0,
                                       .lg_sample = has_rate ? control.collector_lg_sample : control.lg_sample,
                                       .statistics = control.statistics};
  if (IsGuest(control)) figures.statistics.reset();
  return figures;
}

absl::Status CheckControl(const heaptap_control& control, pid_t pid) {
  if (control.magic == 0) {
    return absl::NotFoundError(absl::StrCat("process ", pid,
                                            " has no valid control block: its library of heaptap takes no samples "
                                            "(heaptap doctor -p ",
                                            pid, " says why)"));
  }
  if (control.magic != HEAPTAP_CONTROL_MAGIC) {
    return absl::InvalidArgumentError(absl::StrCat("process ", pid, " has no valid control block"));
  }
  if (control.version != HEAPTAP_CONTROL_VERSION || control.size < sizeof(control)) {
    return absl::InvalidArgumentError(absl::StrCat("process ", pid, " has a control block of version ", control.version,
                                                   ", but this heaptap reads version ", HEAPTAP_CONTROL_VERSION,
                                                   ": install heaptap and libheaptap.so from the same release"));
  }
  return absl::OkStatus();
}

ControlFacts FactsOf(const heaptap_control& control) {
  return {.allocator = {control.text_begin, control.text_end},
          .lg_sample = std::min<uint32_t>(control.lg_sample, HEAPTAP_MAX_LG_SAMPLE),
          .max_frames = control.max_frames,
          .raw = (control.options & HEAPTAP_OPTION_PROF_RAW) != 0,
          .prof_leak = (control.options & HEAPTAP_OPTION_PROF_LEAK) != 0};
}

absl::StatusOr<heaptap_control> ReadControl(const Handle& process, uint64_t address) {
  heaptap_control control;
  if (absl::Status status = process.Read(address, &control, sizeof(control)); !status.ok()) return status;
  if (absl::Status status = CheckControl(control, process.pid()); !status.ok()) return status;
  return control;
}

absl::Status TakeControl(const Handle& process, uint64_t address, uint32_t lg_sample, uint32_t follows,
                         pid_t collector) {
  // The process may have started another program since it told us the address.
  if (absl::Status status = ReadControl(process, address).status(); !status.ok()) return status;
  absl::Status status = WriteField(process, address, offsetof(heaptap_control, collector_lg_sample), lg_sample);
  if (!status.ok()) return status;
  status = WriteField(process, address, offsetof(heaptap_control, collector_follows), follows);
  if (!status.ok()) return status;
  return WriteField(process, address, offsetof(heaptap_control, collector_pid), static_cast<uint32_t>(collector));
}

absl::Status ReleaseControl(const Handle& process, uint64_t address, pid_t collector) {
  absl::StatusOr<heaptap_control> control = ReadControl(process, address);
  if (!control.ok()) return control.status();
  // Without a collector (0), the process may still follow the rate that heaptap:rate has told.
  if (control->collector_pid != 0 && control->collector_pid != static_cast<uint32_t>(collector))
    return absl::OkStatus();
  absl::Status status = WriteField(process, address, offsetof(heaptap_control, collector_lg_sample), HEAPTAP_NO_RATE);
  if (!status.ok()) return status;
  status = WriteField(process, address, offsetof(heaptap_control, collector_follows), HEAPTAP_COLLECTOR_LEFT);
  if (!status.ok()) return status;
  return WriteField(process, address, offsetof(heaptap_control, collector_pid), uint32_t{0});
}

absl::Status WriteTablesReady(const Handle& process, uint64_t address, uint32_t asked) {
  if (absl::Status status = ReadControl(process, address).status(); !status.ok()) return status;
  return WriteField(process, address, offsetof(heaptap_control, tables_ready), asked);
}

absl::Status WriteActive(const Handle& process, uint64_t address, bool active) {
  if (absl::Status status = ReadControl(process, address).status(); !status.ok()) return status;
  return WriteField(process, address, offsetof(heaptap_control, active), uint32_t{active});
}

absl::Status WriteRate(const Handle& process, uint64_t address, uint32_t lg_sample) {
  if (absl::Status status = ReadControl(process, address).status(); !status.ok()) return status;
  return WriteField(process, address, offsetof(heaptap_control, collector_lg_sample), lg_sample);
}

pid_t OtherCollector(const heaptap_control& control) {
  const pid_t pid = static_cast<pid_t>(control.collector_pid);
  if (pid <= 0 || pid == getpid()) return 0;
  // A killed collector leaves its PID in the control block. Another program may have this PID by now.
  return NameOf(pid) == kCollectorName ? pid : 0;
}

}  // namespace heaptap::process
