// SPDX-License-Identifier: Apache-2.0
//
// A request to a crew (crew.h), and its answer.
//
// A job is about one file, which the hands open and the reader reads, or about one process. The bytes of questions and
// answers have a form for each job (reader_jobs.h, hands_jobs.h).
#ifndef HEAPTAP_USERSPACE_WORKER_REQUEST_H_
#define HEAPTAP_USERSPACE_WORKER_REQUEST_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/elf/mappings.h"
#include "userspace/worker/file_version.h"

namespace heaptap::worker {

enum class Job : uint8_t {
  // A reader answers these, about JobFile (reader_jobs.h).
  kDebugLinks = 1,
  kSymbols = 2,
  kTable = 3,
  kAllocator = 4,
  kDump = 5,
  kMalloc = 6,
  // The hands answer these, about JobFile::pid (hands_jobs.h) and JobFile::mapping (file_jobs.h).
  kCommandLine = 64,
  kMaps = 65,
  kFacts = 66,
  kThreadNames = 67,
  kControl = 68,
  kAnswer = 69,
  kLook = 70,
  kVersion = 71,
  kAttach = 72,
  kMemoryUse = 73,
  kResidency = 74,
  kPendingFrees = 75,
  kStart = 76,
  kGiveArea = 77,
  kForTests = 200,  // and above: of a reader
};

// The file of a job: an open one, or one that a process has or had mapped.
struct JobFile {
  int fd = -1;  // stays the caller's
  pid_t pid = 0;
  elf::Mapping mapping = {};
  // The version that the file must have: the process may have mapped another file there by now.
  std::optional<FileVersion> version = {};
};

struct Request {
  Job job = Job::kDebugLinks;
  JobFile file = {};
  // Paths of further files, below `root`. A file is opened if only root may write it and everybody may read it.
  std::string root = {};
  std::vector<std::string> paths = {};
  std::string question = {};
  // For the hands: further descriptors that they need. For the reader: further open files, before those of `paths`. The
  // descriptors stay the caller's.
  std::vector<int> descriptors = {};
  // For jobs on the memory of a process. Called when the memory is open, so that it stays the memory of this process.
  // Returns whether the process is still the right one. Null counts as false.
  std::function<bool()> confirm = {};
};

// Bounds of one job.
struct Limits {
  // 10,000 addresses of a program with 20 MB of debug information take a third of a second; this allows for sixty times
  // as much on a busy machine.
  absl::Duration time = absl::Seconds(20);
  // The limit while the hands are ready to run: then the machine makes the job late, not the process. A value below
  // `time` has no effect.
  absl::Duration longest = absl::ZeroDuration();
  // The bytes that the reader may allocate for this job; kReaderMemory at most.
  uint64_t memory_bytes = uint64_t{1} << 30;
  uint64_t answer_bytes = 32 << 20;
  // A descriptor; when it becomes readable, the job is given up. -1: none.
  int cancel = -1;
};

struct Answer {
  // All that the worker wrote, even if it died.
  std::string bytes = {};
  std::vector<base::FileDescriptor> files = {};  // of Job::kAttach
  // DeadlineExceeded, ResourceExhausted (bytes), Aborted (the worker died): the file's fault. Unavailable: not the
  // file's fault; the job may be tried again. Cancelled: see Limits. Other codes: the job's own.
  absl::Status status = {};
  // How long the worker's processes were ready to run but had no processor. Crews set this.
  absl::Duration processor_wait = {};

  bool IsFault() const {
    return absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status) || absl::IsAborted(status);
  }
};

// What goes to the hands, without the open file.
struct Order {
  Request request = {};
  uint64_t memory_bytes = 0;
};
std::string Encode(const Order& order);
absl::StatusOr<Order> DecodeOrder(absl::string_view bytes);

// A packet of an answer: a part of its bytes, its end, or a question of the hands for Request::confirm. The reply to a
// question is a packet of one byte, 1 or 0.
std::string EncodePart(absl::string_view bytes);
std::string EncodeQuestion();
std::string EncodeEnd(const absl::Status& status);
struct AnswerPiece {
  absl::string_view part = {};  // within the packet
  bool is_question = false;
  bool is_end = false;
  absl::Status status = {};
};
// The packet may be hostile.
absl::StatusOr<AnswerPiece> DecodeAnswer(absl::string_view packet);

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_REQUEST_H_
