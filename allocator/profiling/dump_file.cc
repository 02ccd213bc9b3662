// SPDX-License-Identifier: Apache-2.0
#include "allocator/profiling/dump_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include "allocator/profiling/dump_name.h"
#include "heaptap/contract.h"

namespace heaptap {
namespace {

// A file that the program has named may be for others too, as jemalloc's are.
constexpr mode_t kNamedMode = 0644;
constexpr mode_t kAutomaticMode = 0600;

// Automatic names that are tried for one dump. Earlier processes with the same PID may have left a dump every second
// for most of a day: in a container the PID is often 1.
constexpr int kMaxNames = 1 << 16;

DumpName file_name;
DumpName part_name;

// O_NONBLOCK: does not wait for the reader of a FIFO.
long OpenFile(const char* path, int flags, mode_t mode) {
  return SystemCall(SYS_openat, AT_FDCWD, reinterpret_cast<long>(path),
                    O_CREAT | O_WRONLY | O_CLOEXEC | O_NONBLOCK | flags, mode);
}

bool Exists(const char* path) {
  struct stat status;
  return SystemCall(SYS_lstat, reinterpret_cast<long>(path), reinterpret_cast<long>(&status)) != -ENOENT;
}

long RenamePart(const char* path, unsigned flags) {
  return SystemCall(SYS_renameat2, AT_FDCWD, reinterpret_cast<long>(part_name.text()), AT_FDCWD,
                    reinterpret_cast<long>(path), flags);
}

void MakeName(uint32_t kind) {
  if (kind == HEAPTAP_ASK_LOG) {
    MakeLogName(&file_name);
  } else {
    MakeDumpName(static_cast<heaptap_dump_kind>(kind), &file_name);
  }
}

}  // namespace

DumpFile::DumpFile(uint32_t kind, const char* path)
    : kind_(kind), is_automatic_(path == nullptr), path_(is_automatic_ ? file_name.text() : path), file_(-EEXIST) {
  if (!is_automatic_) {
    if (!Exists(path)) OpenPart(kNamedMode);
    if (!file_.valid()) OpenInPlace();
    return;
  }
  for (int i = 0; i < kMaxNames && file_.number() == -EEXIST; i++) {
    MakeName(kind);
    if (!Exists(path_)) OpenPart(kAutomaticMode);
  }
}

DumpFile::~DumpFile() {
  if (created_ != nullptr) SystemCall(SYS_unlinkat, AT_FDCWD, reinterpret_cast<long>(created_), 0);
}

void DumpFile::OpenPart(mode_t mode) {
  part_name.Clear();
  part_name << path_ << '.' << uint64_t{ProcessId()} << ".part";
  file_.Reset(OpenFile(part_name.text(), O_EXCL | O_NOFOLLOW, mode));
  if (file_.valid()) created_ = part_name.text();
}

// Opens an existing file, which other programs may have open. Also used if no file can be created next to the path.
void DumpFile::OpenInPlace() {
  file_.Reset(OpenFile(path_, O_EXCL, kNamedMode));
  if (file_.valid()) created_ = path_;
  if (!file_.valid()) file_.Reset(OpenFile(path_, 0, kNamedMode));
}

bool DumpFile::IsRegular() const {
  struct stat status;
  return file_.valid() && SystemCall(SYS_fstat, file_.number(), reinterpret_cast<long>(&status)) == 0 &&
         S_ISREG(status.st_mode);
}

// Gives the file its name. If another file has got the automatic name meanwhile, a later name is taken.
bool DumpFile::NamePart() {
  if (!is_automatic_) return RenamePart(path_, 0) == 0;
  long error = RenamePart(path_, RENAME_NOREPLACE);
  for (int i = 1; i < kMaxNames && error == -EEXIST; i++) {
    MakeName(kind_);
    error = RenamePart(path_, RENAME_NOREPLACE);
  }
  // The file system cannot check the name, for example NFS. The name was free before the dump.
  if (error == -EINVAL) error = RenamePart(path_, 0);
  return error == 0;
}

bool DumpFile::Finish() {
  if (created_ == part_name.text() && !NamePart()) return false;
  created_ = nullptr;
  return true;
}

const char* LastAutomaticName() { return file_name.text(); }

}  // namespace heaptap
