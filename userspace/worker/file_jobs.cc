// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/file_jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/user_ids.h"
#include "userspace/bpf/identify.h"
#include "userspace/bpf/probes.h"
#include "userspace/process/maps.h"
#include "userspace/process/proc_files.h"
#include "userspace/worker/plain_bytes.h"

namespace heaptap::worker {
namespace {

bool IsSame(const heaptap_file_key& a, const heaptap_file_key& b) {
  return a.inode == b.inode && a.device == b.device && a.generation == b.generation;
}

// Whether /proc/PID/maps shows this file as the mapping. Depending on the kernel it shows overlayfs's own numbers, as
// stat(2) does, or those of the file beneath; on btrfs only the latter.
bool IsShownAs(const MappedFile& file, const elf::Mapping& mapping) {
  constexpr uint32_t kMinorBits = 20;  // of the kernel's dev_t (include/linux/kdev_t.h)
  const FileVersion& version = file.version;
  const bool is_shown_itself = version.inode == mapping.inode && version.device_major == mapping.device_major &&
                               version.device_minor == mapping.device_minor;
  return is_shown_itself || (file.key.inode == mapping.inode &&
                             file.key.device == (mapping.device_major << kMinorBits | mapping.device_minor));
}

// Whether the inode of an open file has the numbers of the mapping. If an overlayfs has layers on several file systems,
// stat(2) shows other numbers, and /proc/PID/maps shows the numbers of the overlayfs itself. Its device is in the
// mounts of the process, and its inode is in /proc/self/fdinfo since Linux 5.14; before that version, the answer is no.
bool HasNumbersOf(int fd, pid_t pid, const elf::Mapping& mapping) {
  std::string name;
  std::string mount;
  uint64_t inode = 0;
  std::ifstream info(absl::StrCat("/proc/self/fdinfo/", fd));
  for (std::string value; info >> name && std::getline(info, value);) {
    if (name == "mnt_id:") mount = std::string(absl::StripAsciiWhitespace(value));
    if (name == "ino:" && !absl::SimpleAtoi(value, &inode)) return false;
  }
  if (mount.empty() || inode != mapping.inode) return false;
  std::ifstream mounts;
  const bool is_open = process::AskThreads(pid, [&](pid_t thread) {
    mounts = std::ifstream(process::ThreadFile(thread, "mountinfo"));
    return mounts.is_open();
  });
  if (!is_open) return false;
  std::string parent;
  std::string device;
  // Each line begins with the mount's id, its parent's, and the device (proc_pid_mountinfo(5)).
  for (std::string rest; mounts >> name >> parent >> device && std::getline(mounts, rest);) {
    if (name == mount) return device == absl::StrCat(mapping.device_major, ":", mapping.device_minor);
  }
  return false;
}

absl::StatusOr<MappedFile> LookAt(const process::MappedFile& file, pid_t pid, int program) {
  const absl::StatusOr<heaptap_identify> found = bpf::Identify(program, file.file.get());
  if (!found.ok()) return found.status();
  struct stat status;
  struct statfs system;
  if (fstat(file.file.get(), &status) != 0 || fstatfs(file.file.get(), &system) != 0) {
    return absl::UnavailableError(absl::StrCat("a mapped file: ", strerror(errno)));
  }
  MappedFile result = {.key = found->file,
                       .inode_address = found->inode_address,
                       .version = ToVersion(status),
                       .process_user = base::kUnknownUser,
                       .owner = status.st_uid};
  struct stat process;
  if (stat(process::ThreadFile(pid, ".").c_str(), &process) == 0) result.process_user = process.st_uid;
  if (system.f_type == FUSE_SUPER_MAGIC) result.owner = result.process_user;
  return result;
}

// The open file of a job. It may have come open, as the last descriptor.
absl::StatusOr<process::MappedFile> Open(const JobFile& file, absl::Span<const int> descriptors, size_t programs) {
  if (descriptors.size() <= programs) return process::OpenMapped(file.pid, file.mapping);
  base::FileDescriptor copy(fcntl(descriptors.back(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return absl::UnavailableError(strerror(errno));
  std::string path = absl::StrCat("/proc/self/fd/", copy.get());
  return process::MappedFile{std::move(copy), std::move(path)};
}

// NotFound: `file` is not the file of the order, or somebody has written to it since.
absl::Status CheckOrdered(const absl::StatusOr<process::MappedFile>& file, const AttachOrder& order, int identify) {
  if (!file.ok()) return file.status();
  const absl::StatusOr<heaptap_identify> found = bpf::Identify(identify, file->file.get());
  if (!found.ok()) return found.status();
  struct stat status;
  if (found->inode_address != order.inode_address || fstat(file->file.get(), &status) != 0 ||
      ToVersion(status) != order.version) {
    return absl::NotFoundError("the file has changed");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Look(const Request& request, absl::Span<const int> descriptors, const HandsOutput& output) {
  absl::string_view question = request.question;
  heaptap_file_key key = {};
  const bool is_known = Take(question, key);
  if (descriptors.empty()) return absl::InvalidArgumentError("an order without its program");
  const JobFile& wanted = request.file;
  absl::StatusOr<process::MappedFile> file = process::OpenMapped(wanted.pid, wanted.mapping);
  const auto look = [&] {
    return file.ok() ? LookAt(*file, wanted.pid, descriptors[0]) : absl::StatusOr<MappedFile>(file.status());
  };
  absl::StatusOr<MappedFile> found = look();
  const auto is_it = [&] {
    if (!found.ok()) return false;
    if (is_known) return IsSame(found->key, key);
    return IsShownAs(*found, wanted.mapping) || HasNumbersOf(file->file.get(), wanted.pid, wanted.mapping);
  };
  if (!is_it()) {
    // The process may have mapped another file there by now, or be gone.
    file = process::OpenByPath(wanted.mapping);
    found = look();
    if (!is_it()) {
      return found.ok() ? absl::NotFoundError(absl::StrCat(wanted.mapping.path, " can no longer be opened"))
                        : found.status();
    }
  }
  output.write(BytesOf(*found));
  return absl::OkStatus();
}

absl::Status WriteVersion(const Request& request, const HandsOutput& output) {
  struct statx status;
  const elf::Mapping& mapping = request.file.mapping;
  const std::string name = process::MapFile(mapping);
  const bool is_known = process::AskThreads(request.file.pid, [&](pid_t thread) {
    const std::string path = process::ThreadFile(thread, name);
    return statx(AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &status) == 0;
  });
  if (!is_known) return absl::NotFoundError(absl::StrCat("process ", request.file.pid, " has no ", name));
  output.write(Encode(ToVersion(status)));
  return absl::OkStatus();
}

std::string AttachQuestion(const AttachOrder& order, absl::Span<const AttachSite> sites) {
  std::string question(BytesOf(order));
  for (const AttachSite& site : sites) absl::StrAppend(&question, BytesOf(site));
  return question;
}

absl::Status Attach(const Request& request, absl::Span<const int> descriptors, const HandsOutput& output) {
  absl::string_view question = request.question;
  AttachOrder order;
  if (!Take(question, order)) return absl::InvalidArgumentError("no order");
  std::vector<AttachSite> sites(question.size() / sizeof(AttachSite));
  uint32_t last = order.identify;
  for (AttachSite& site : sites) {
    Take(question, site);
    last = std::max(last, site.program);
  }
  if (last >= descriptors.size()) return absl::InvalidArgumentError("an order without its programs");
  const size_t programs = size_t{last} + 1;
  absl::StatusOr<process::MappedFile> file = Open(request.file, descriptors, programs);
  absl::Status status = CheckOrdered(file, order, descriptors[order.identify]);
  if (!status.ok() && request.file.pid != 0) {
    // The process may have mapped another file there by now, or be gone, as short-lived ones always are.
    file = process::OpenByPath(request.file.mapping);
    status = CheckOrdered(file, order, descriptors[order.identify]);
  }
  if (!status.ok()) return status;
  std::vector<bpf::AttachedProbe> probes;
  if (order.has_many_sites != 0) {
    std::vector<bpf::ProbeSite> many;
    many.reserve(sites.size());
    for (const AttachSite& site : sites) many.push_back({site.offset, site.semaphore_offset, site.cookie});
    absl::StatusOr<bpf::AttachedProbe> probe =
        bpf::AttachedProbe::AttachMany(descriptors[0], file->path, many, order.pid);
    if (!probe.ok()) return probe.status();
    probes.push_back(*std::move(probe));
  } else {
    for (const AttachSite& site : sites) {
      absl::StatusOr<bpf::AttachedProbe> probe = bpf::AttachedProbe::Attach(
          descriptors[site.program], {file->path, site.offset, site.semaphore_offset, site.cookie}, order.pid);
      if (!probe.ok()) return probe.status();
      probes.push_back(*std::move(probe));
    }
  }
  for (const bpf::AttachedProbe& probe : probes) output.hand_up(probe.link());
  return absl::OkStatus();
}

}  // namespace heaptap::worker
