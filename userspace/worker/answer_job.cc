// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/answer_job.h"

#include "absl/strings/str_cat.h"
#include "userspace/process/dump_request.h"
#include "userspace/process/handle.h"
#include "userspace/worker/plain_bytes.h"

namespace heaptap::worker {

std::string AnswerQuestion(const DumpAnswer& answer, absl::string_view contents) {
  return absl::StrCat(BytesOf(answer), contents);
}

absl::Status AnswerDump(const Request& request, const HandsOutput& output) {
  absl::string_view contents = request.question;
  DumpAnswer answer;
  if (!Take(contents, answer)) return absl::InvalidArgumentError("no answer");
  const absl::StatusOr<process::Handle> process = process::Handle::Open(request.file.pid);
  if (!process.ok() || !output.confirm()) return absl::OkStatus();  // it has ended
  const absl::StatusOr<heaptap_dump_request> asked = process::ReadDumpRequest(*process, answer.address);
  // Other hands have answered, and died before they said so.
  if (absl::IsAlreadyExists(asked.status())) return absl::OkStatus();
  if (!asked.ok()) return asked.status();
  // The process may have given up and made another request.
  if (answer.sequence != 0 && answer.sequence != asked->sequence) return absl::OkStatus();
  if (answer.error != 0) {
    return process::AnswerWithError(*process, answer.address, *asked, static_cast<int>(answer.error));
  }
  return process::AnswerWithDump(*process, answer.address, *asked, contents, answer.leaks, output.confirm);
}

}  // namespace heaptap::worker
