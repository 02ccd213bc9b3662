// SPDX-License-Identifier: Apache-2.0
//
// Dump requests of any bytes, in this process's own memory, with descriptors of every sort: a dump is written into a
// regular file that is open for writing, or nowhere, and an answer says the truth.
#include <fcntl.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "heaptap/contract.h"
#include "tests/fuzz/check.h"
#include "userspace/process/dump_request.h"

namespace {

using heaptap::process::AnswerWithDump;
using heaptap::process::AnswerWithError;
using heaptap::process::Handle;
using heaptap::process::ReadDumpRequest;

// No descriptor of the fuzzer's own is among them: its log is a regular file, too.
struct Descriptors {
  int file = memfd_create("file", 0);
  int sealed = memfd_create("sealed", MFD_ALLOW_SEALING);
  int readonly = open(absl::StrCat("/proc/self/fd/", file).c_str(), O_RDONLY);
  int path = open(absl::StrCat("/proc/self/fd/", file).c_str(), O_PATH);
  int proc = open("/proc/self/oom_score_adj", O_RDWR);
  int null = open("/dev/null", O_RDWR);
  int event = eventfd(0, EFD_NONBLOCK);
  int full = eventfd(0, EFD_NONBLOCK);
  int closed = 1000;

  Descriptors() {
    Check(fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) == 0);
    Check(eventfd_write(full, UINT64_MAX - 1) == 0);
  }
  int Pick(FuzzedDataProvider& data) const {
    return data.PickValueInArray({file, sealed, readonly, path, proc, null, event, full, closed, -1, INT32_MIN});
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const Descriptors descriptors;
  static const auto* self = new absl::StatusOr<heaptap::process::Handle>(heaptap::process::Handle::Open(getpid()));
  Check(self->ok());
  FuzzedDataProvider data(bytes, size);
  heaptap_dump_request request = {};
  request.sequence = data.PickValueInArray<uint64_t>({0, 1, 2, UINT64_MAX});
  request.answered = data.PickValueInArray<uint64_t>({0, 1, 2, UINT64_MAX});
  request.kind = data.ConsumeIntegral<uint32_t>();
  request.argument = data.ConsumeIntegral<uint64_t>();
  request.error = data.ConsumeIntegral<int32_t>();
  request.file_fd = descriptors.Pick(data);
  request.event_fd = descriptors.Pick(data);
  const bool is_somewhere_else = data.ConsumeBool();
  const auto address = is_somewhere_else ? data.ConsumeIntegral<uint64_t>() : reinterpret_cast<uint64_t>(&request);
  const bool gives_up = data.ConsumeBool();
  // No dump is empty.
  const std::string contents = absl::StrCat("heap", data.ConsumeRandomLengthString(1000));
  Check(ftruncate(descriptors.file, 0) == 0);

  const absl::StatusOr<heaptap_dump_request> asked = heaptap::process::ReadDumpRequest(**self, address);
  if (!asked.ok() || is_somewhere_else) return 0;
  Check(asked->sequence != 0 && asked->answered != asked->sequence && asked->file_fd >= 0 && asked->event_fd >= 0);
  if (gives_up) request.sequence++;
  const absl::Status status = heaptap::process::AnswerWithDump(**self, address, *asked, contents,
                                                               {.bytes = 1, .objects = 1}, [] { return true; });
  struct stat file;
  Check(fstat(descriptors.file, &file) == 0);
  const bool is_good = asked->file_fd == descriptors.file && !gives_up &&
                       (asked->event_fd == descriptors.event || asked->event_fd == descriptors.full);
  Check(status.ok() == is_good);
  Check(file.st_size == (is_good ? static_cast<off_t>(contents.size()) : 0));
  if (request.answered == asked->sequence) Check((request.error == 0) == is_good);
  if (gives_up) Check(request.answered != asked->sequence);
  heaptap::process::AnswerWithError(**self, address, *asked, ESRCH).IgnoreError();
  eventfd_t count;
  eventfd_read(descriptors.event, &count);
  return 0;
}
