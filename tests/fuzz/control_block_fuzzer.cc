// SPDX-License-Identifier: Apache-2.0
//
// A control block of any bytes, and the search for one in any file: either is refused with a reason, or what is taken
// from it is within bounds.
#include <string.h>

#include <cstdint>
#include <string>

#include "heaptap/contract.h"
#include "tests/fuzz/check.h"
#include "tests/unit/elf_image.h"
#include "userspace/process/control_block.h"

namespace {

using heaptap::process::CheckControl;
using heaptap::process::ControlFacts;
using heaptap::process::FactsOf;

constexpr pid_t kPid = 1234;

void CheckBlock(const heaptap_control& control) {
  const absl::Status status = heaptap::process::CheckControl(control, kPid);
  if (!status.ok()) {
    Check(absl::IsInvalidArgument(status) || (absl::IsNotFound(status) && control.magic == 0));
    Check(status.message().size() < 200);
    for (const char character : status.message()) Check(character >= ' ' && character <= '~');
  } else {
    Check(control.magic == HEAPTAP_CONTROL_MAGIC && control.version == HEAPTAP_CONTROL_VERSION);
    Check(control.size >= sizeof(control));
  }
  const heaptap::process::ControlFacts facts = heaptap::process::FactsOf(control);
  Check(facts.lg_sample <= HEAPTAP_MAX_LG_SAMPLE);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  heaptap_control control = {};
  memcpy(&control, bytes, std::min(size, sizeof(control)));
  CheckBlock(control);
  control.magic = HEAPTAP_CONTROL_MAGIC;
  CheckBlock(control);
  control.version = HEAPTAP_CONTROL_VERSION;
  CheckBlock(control);

  heaptap::elf::Mapping mapping;
  mapping.start = control.text_begin;
  mapping.end = control.text_end;
  mapping.file_offset = control.alloc_semaphore;
  const heaptap::base::FileDescriptor file =
      heaptap::elf::FileWith(std::string(reinterpret_cast<const char*>(bytes), size));
  heaptap::process::FindControl(file.get(), mapping).IgnoreError();
  return 0;
}
