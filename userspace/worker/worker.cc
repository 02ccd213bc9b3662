// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/process/maps.h"
#include "userspace/worker/confine.h"
#include "userspace/worker/hands_jobs.h"
#include "userspace/worker/packet.h"

namespace heaptap::worker {
namespace {

// Hands: requests come from 0, and answers go there; 1 leads to the reader.
// Reader: requests come from 0, and answers go to 1.
constexpr int kRequests = STDIN_FILENO;
constexpr int kReader = STDOUT_FILENO;
constexpr int kAnswers = STDOUT_FILENO;

// The packet to the reader has the job, and one of these bytes for each further file and each path. Its descriptors
// are: a file with the bound of the reader's memory and the question (PutInFile), the job's file, the further files,
// and the files of the paths that could be opened.
constexpr char kIsOpen = '+';
constexpr char kIsNotOpen = '-';

// The other end is gone, so this process is not needed any more.
[[noreturn]] void End() { _exit(0); }

void SendOrEnd(int socket, absl::string_view bytes, absl::Span<const int> descriptors = {}) {
  if (!SendPacket(socket, bytes, descriptors).ok()) End();
}

// Opens the regular file `path` below the folder `root`, if only root may write it and everybody may read it.
base::FileDescriptor OpenBelow(absl::string_view root, absl::string_view path) {
  base::FileDescriptor folder(open(std::string(root).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return {};
  struct open_how how = {};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  const std::string name(absl::StripPrefix(path, "/"));
  base::FileDescriptor file(static_cast<int>(syscall(SYS_openat2, folder.get(), name.c_str(), &how, sizeof(how))));
  struct stat status;
  if (!file.valid() || fstat(file.get(), &status) != 0) return {};
  // Names in the file are for all users, so all users must be allowed to read it.
  const bool is_safe = S_ISREG(status.st_mode) && status.st_uid == 0 && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
                       (status.st_mode & S_IROTH) != 0;
  return is_safe ? std::move(file) : base::FileDescriptor();
}

absl::StatusOr<base::FileDescriptor> OpenFile(const JobFile& file) {
  const auto is_it = [&](const absl::StatusOr<process::MappedFile>& opened) {
    struct stat status;
    if (!opened.ok()) return false;
    return !file.version.has_value() ||
           (fstat(opened->file.get(), &status) == 0 && ToVersion(status).IsSameFile(*file.version));
  };
  absl::StatusOr<process::MappedFile> opened = absl::NotFoundError("no process");
  if (file.pid != 0) opened = process::OpenMapped(file.pid, file.mapping);
  if (!is_it(opened)) opened = process::OpenByPath(file.mapping);
  if (!opened.ok()) return opened.status();
  if (!is_it(opened)) return absl::NotFoundError("another file is mapped there by now");
  return std::move(opened->file);
}

void SendParts(int socket, absl::string_view bytes) {
  constexpr size_t kMost = kMaxPacketBytes - 1;  // one byte says that the packet is a part
  for (; !bytes.empty(); bytes.remove_prefix(std::min(kMost, bytes.size()))) {
    SendOrEnd(socket, EncodePart(bytes.substr(0, kMost)));
  }
}

void WriteAnswer(absl::string_view bytes) { SendParts(kRequests, bytes); }

void HandUp(int file) { SendOrEnd(kRequests, EncodePart(""), {&file, 1}); }

bool AskForConfirmation() {
  SendOrEnd(kRequests, EncodeQuestion());
  const absl::StatusOr<std::string> answer = ReceiveBytes(kRequests);
  if (!answer.ok()) End();
  return *answer == std::string(1, 1);
}

// Does one request, or opens its files and hands them to the reader. Returns the end of the answer; none: the reader
// answers.
std::optional<absl::Status> DoRequest(Packet packet) {
  if (packet.bytes.empty()) return absl::InvalidArgumentError("an empty request");
  const auto flags = static_cast<uint8_t>(packet.bytes[0]);
  std::string bytes = packet.bytes.substr(1);
  if ((flags & kLongRequest) != 0) {
    if (packet.descriptors.empty()) return absl::InvalidArgumentError("a request without its file");
    absl::StatusOr<std::string> taken = TakeFromFile(packet.descriptors.front().get(), SIZE_MAX);
    if (!taken.ok()) return taken.status();
    bytes = *std::move(taken);
  }
  absl::StatusOr<Order> order = DecodeOrder(bytes);
  if (!order.ok()) return order.status();
  bytes = {};  // may be large
  const Request* request = &order->request;
  if (IsHandsJob(request->job)) {
    std::vector<int> descriptors;
    for (size_t i = (flags & kLongRequest) != 0 ? 1 : 0; i < packet.descriptors.size(); i++) {
      descriptors.push_back(packet.descriptors[i].get());
    }
    return DoHandsJob(*request, descriptors, {.write = WriteAnswer, .hand_up = HandUp, .confirm = AskForConfirmation});
  }
  base::FileDescriptor file;
  if ((flags & kOpenFile) != 0) {
    if (packet.descriptors.empty()) return absl::InvalidArgumentError("a request without its file");
    file = std::move(packet.descriptors.back());
  } else {
    absl::StatusOr<base::FileDescriptor> opened = OpenFile(request->file);
    if (!opened.ok()) return opened.status();
    file = *std::move(opened);
  }
  std::vector<base::FileDescriptor> others;
  std::string opened_paths;
  const size_t first_given = (flags & kLongRequest) != 0 ? 1 : 0;
  const size_t end_given = packet.descriptors.size() - ((flags & kOpenFile) != 0 ? 1 : 0);
  for (size_t i = first_given; i < end_given; i++) {
    others.push_back(std::move(packet.descriptors[i]));
    opened_paths.push_back(kIsOpen);
  }
  for (const std::string& path : request->paths) {
    base::FileDescriptor other = OpenBelow(request->root, path);
    const bool is_open = other.valid() && others.size() + 2 < kMaxPacketDescriptors;
    opened_paths.push_back(is_open ? kIsOpen : kIsNotOpen);
    if (is_open) others.push_back(std::move(other));
  }
  const absl::string_view memory(reinterpret_cast<const char*>(&order->memory_bytes), sizeof(order->memory_bytes));
  absl::StatusOr<base::FileDescriptor> question = PutInFile(absl::StrCat(memory, request->question));
  if (!question.ok()) return question.status();
  std::vector<int> descriptors = {question->get(), file.get()};
  for (const base::FileDescriptor& other : others) descriptors.push_back(other.get());
  const char job = static_cast<char>(request->job);
  SendOrEnd(kReader, absl::StrCat(absl::string_view(&job, 1), opened_paths), descriptors);
  return std::nullopt;
}

[[noreturn]] void RunHands() {
  prctl(PR_SET_NAME, "heaptap-hands");
  if (!ConfineHands()) End();
  for (;;) {
    absl::StatusOr<Packet> packet = ReceivePacket(kRequests);
    if (!packet.ok()) End();
    const std::optional<absl::Status> end = DoRequest(*std::move(packet));
    if (end.has_value()) SendOrEnd(kRequests, EncodeEnd(*end));
  }
}

absl::Status DoReaderJob(const ReaderJobs& jobs, Packet packet) {
  if (packet.bytes.empty() || packet.descriptors.size() < 2) return absl::InvalidArgumentError("not a job");
  const auto job = jobs.find(static_cast<Job>(packet.bytes[0]));
  if (job == jobs.end()) return absl::InvalidArgumentError("an unknown job");
  absl::StatusOr<std::string> question = TakeFromFile(packet.descriptors[0].get(), SIZE_MAX);
  if (!question.ok()) return question.status();
  uint64_t memory;
  if (question->size() < sizeof(memory)) return absl::InvalidArgumentError("not a job");
  memcpy(&memory, question->data(), sizeof(memory));
  LimitMemory(memory);
  ReaderInput input = {.file = packet.descriptors[1].get(),
                       .question = absl::string_view(*question).substr(sizeof(memory))};
  auto next = packet.descriptors.begin() + 2;
  for (const char is_open : absl::string_view(packet.bytes).substr(1)) {
    const bool is_there = is_open == kIsOpen && next != packet.descriptors.end();
    input.others.push_back(is_there ? (next++)->get() : -1);
  }
  const auto write = [](absl::string_view bytes) { SendParts(kAnswers, bytes); };
  try {
    return job->second(input, write);
  } catch (const std::exception& error) {
    // Most likely the reader has reached the bound of its memory.
    return absl::ResourceExhaustedError(error.what());
  }
}

[[noreturn]] void RunReader(const ReaderJobs& jobs) {
  prctl(PR_SET_NAME, "heaptap-reader");
  if (!ConfineReader()) End();
  for (;;) {
    absl::StatusOr<Packet> packet = ReceivePacket(kRequests);
    if (!packet.ok()) End();
    SendOrEnd(kAnswers, EncodeEnd(DoReaderJob(jobs, *std::move(packet))));
  }
}

}  // namespace

void RunIfWorker(int argc, char** argv, const ReaderJobs& jobs) {
  if (argc != 2 || absl::string_view(argv[0]) != kWorkerName) return;
  if (!ConfineWorker()) End();
  const absl::string_view kind = argv[1];
  if (kind == kHandsName) RunHands();
  if (kind == kReaderName) RunInBackground();
  if (kind == kForegroundReaderName) RunAtOrdinaryPriority();
  if (kind == kReaderName || kind == kForegroundReaderName) RunReader(jobs);
  End();
}

}  // namespace heaptap::worker
