// SPDX-License-Identifier: Apache-2.0
#include "userspace/dumps/dump_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/files.h"

namespace heaptap::recording {
namespace {

// The longest suffix is ".4194304.18446744073709551615.u18446744073709551615.heap".
constexpr size_t kMaxSuffix = 64;

// How many existing dumps with the same names are skipped.
constexpr int kMaxNamesTried = 100000;

std::string Suffix(heaptap_dump_kind kind, const DumpSequence& sequence) {
  switch (kind) {
    case HEAPTAP_DUMP_INTERVAL:
      return absl::StrCat("i", sequence.interval);
    case HEAPTAP_DUMP_MANUAL:
      return absl::StrCat("m", sequence.manual);
    case HEAPTAP_DUMP_HIGH_WATER:
      return absl::StrCat("u", sequence.high_water);
    case HEAPTAP_DUMP_FINAL:
      break;
  }
  return "f";
}

void Advance(heaptap_dump_kind kind, DumpSequence& sequence) {
  sequence.all++;
  if (kind == HEAPTAP_DUMP_INTERVAL) sequence.interval++;
  if (kind == HEAPTAP_DUMP_MANUAL) sequence.manual++;
  if (kind == HEAPTAP_DUMP_HIGH_WATER) sequence.high_water++;
}

// Whether a folder was removed. The kernel only says that operations in it are not permitted.
bool IsRemoved(int folder) {
  struct stat status;
  return fstat(folder, &status) == 0 && status.st_nlink == 0;
}

}  // namespace

absl::StatusOr<DumpFolder> DumpFolder::Open(absl::string_view prefix, absl::string_view option) {
  const size_t slash = prefix.rfind('/');
  std::string parent(slash == absl::string_view::npos ? "" : prefix.substr(0, slash + 1));
  std::string name(slash == absl::string_view::npos ? prefix : prefix.substr(slash + 1));
  if (name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("-o ", prefix, ": expected a prefix for file names, such as ", parent, "jeprof"));
  }
  if (name.size() > NAME_MAX - kMaxSuffix) {
    return absl::InvalidArgumentError(absl::StrCat("-o: the prefix has ", name.size(), " characters, but at most ",
                                                   NAME_MAX - kMaxSuffix,
                                                   " leave room for .PID.SEQUENCE.KIND.heap in a file name"));
  }
  const std::string path = parent.empty() ? "." : parent;
  base::FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write dumps to ", path, ": ", strerror(errno), "; choose another folder with ", option));
  }
  // access(2) lets root pass even where no file can be created, so create one.
  base::FileDescriptor probe(openat(folder.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (!probe.valid() && errno != EOPNOTSUPP) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write dumps to ", path, ": ", strerror(errno), "; choose another folder with ", option));
  }
  return DumpFolder(std::move(folder), std::move(parent), std::move(name));
}

bool DumpFolder::Renew() {
  struct stat before;
  struct stat now;
  if (fstat(folder_->Get()->get(), &before) != 0 || stat(Path().c_str(), &now) != 0) return false;
  if (now.st_dev == before.st_dev && now.st_ino == before.st_ino) return false;
  base::FileDescriptor folder(open(Path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid() || fstat(folder.get(), &now) != 0) return false;
  // Others must not choose where dumps go, or who may write there.
  constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;
  if (now.st_uid != before.st_uid || (now.st_mode & ~before.st_mode & kWritableByOthers) != 0) return false;
  folder_->Set(std::move(folder));
  return true;
}

int DumpFolder::Duplicate() const { return fcntl(folder_->Get()->get(), F_DUPFD_CLOEXEC, 0); }

DumpFile::~DumpFile() {
  if (!temporary_.empty()) unlinkat(folder_->get(), temporary_.c_str(), 0);
}

std::shared_ptr<const DumpFile> DumpFolder::Fill(absl::string_view contents) const {
  const std::shared_ptr<const base::FileDescriptor> folder = folder_->Get();
  std::shared_ptr<DumpFile> dump(new DumpFile(folder, contents.size()));
  // An unnamed file, which vanishes with this process. File systems without O_TMPFILE get an unpredictable name.
  dump->file_.Reset(openat(folder->get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (!dump->file_.valid() && errno == EOPNOTSUPP) {
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
      dump->error_ = errno;
      return dump;
    }
    const std::string name = absl::StrCat(".", absl::Hex(random), ".tmp");
    dump->file_.Reset(openat(folder->get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (dump->file_.valid()) dump->temporary_ = name;
  }
  if (!dump->file_.valid()) {
    dump->error_ = errno;
    return dump;
  }
  dump->error_ = base::WriteAll(dump->file_.get(), contents);
  // Only a dump that is on the disk gets a name, so that a crash of the machine leaves no empty one.
  if (dump->error_ == 0 && fdatasync(dump->file_.get()) != 0) dump->error_ = errno;
  if (dump->error_ != 0) return dump;
  // Some file systems report a lack of space only when a descriptor is closed.
  const int copy = fcntl(dump->file_.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0 || (close(copy) != 0 && errno != EINTR)) dump->error_ = errno;
  return dump;
}

absl::StatusOr<std::string> DumpFolder::Name(const DumpFile& dump, absl::string_view name, pid_t pid,
                                             heaptap_dump_kind kind, DumpSequence& sequence) const {
  std::string safe(name);
  for (char& byte : safe) {
    const bool is_hidden = byte == '.' && &byte == safe.data();
    if (is_hidden || (!absl::ascii_isalnum(byte) && byte != '-' && byte != '_' && byte != '.')) byte = '_';
  }
  return NameAs(dump, safe.empty() ? "_" : safe, pid, kind, sequence);
}

absl::StatusOr<std::string> DumpFolder::Name(const DumpFile& dump, pid_t pid, heaptap_dump_kind kind,
                                             DumpSequence& sequence) const {
  return NameAs(dump, name_, pid, kind, sequence);
}

absl::StatusOr<std::string> DumpFolder::NameAs(const DumpFile& dump, const std::string& prefix, pid_t pid,
                                               heaptap_dump_kind kind, DumpSequence& sequence) const {
  DumpSequence next = sequence;
  const int folder = dump.folder_->get();
  const auto name = [&] { return absl::StrCat(prefix, ".", pid, ".", next.all, ".", Suffix(kind, next), ".heap"); };
  const auto failure = [&](int error) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot write ", parent_, name(), ": ", strerror(IsRemoved(folder) ? ENOENT : error), "; the dump is lost"));
  };
  if (dump.error_ != 0) return failure(dump.error_);
  const std::string& temporary = dump.temporary_;
  const std::string source = temporary.empty() ? absl::StrCat("/proc/self/fd/", dump.file_.get()) : temporary;
  const int source_folder = temporary.empty() ? AT_FDCWD : folder;
  const int follow = temporary.empty() ? AT_SYMLINK_FOLLOW : 0;
  for (int i = 0; i < kMaxNamesTried; i++, next.all++) {
    // A hard link never replaces an existing file.
    int error = linkat(source_folder, source.c_str(), folder, name().c_str(), follow) == 0 ? 0 : errno;
    if (error != 0 && error != EEXIST && !temporary.empty()) {
      // A file system without hard links.
      error = renameat2(folder, temporary.c_str(), folder, name().c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
    }
    if (error == 0) {
      std::string path = absl::StrCat(parent_, name());
      Advance(kind, next);
      sequence = next;
      return path;
    }
    if (error != EEXIST) return failure(error);
  }
  return failure(EEXIST);
}

}  // namespace heaptap::recording
