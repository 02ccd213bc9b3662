// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/pins.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/bpf/kernel_error.h"

namespace heaptap::bpf {
namespace {

// The kernel's mount point for a BPF file system. A mount anywhere else would hide the contents of the folder.
constexpr char kMountPoint[] = "/sys/fs/bpf";

// A collector that was killed while it started a worker leaves a process that keeps its lock until the worker's program
// begins.
constexpr absl::Duration kLockPatience = absl::Milliseconds(500);
constexpr absl::Duration kLockPause = absl::Milliseconds(10);

bool IsBpfFileSystem(const std::string& path) {
  struct statfs status;
  return statfs(path.c_str(), &status) == 0 && status.f_type == BPF_FS_MAGIC;
}

std::string Parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

std::vector<std::string> List(const std::string& folder) {
  std::vector<std::string> names;
  DIR* open = opendir(folder.c_str());
  if (open == nullptr) return names;
  while (const dirent* entry = readdir(open)) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  closedir(open);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status Unusable(absl::string_view base, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("cannot keep the recording in ", base, ": ", why));
}

// Makes and locks the folder.
absl::StatusOr<base::FileDescriptor> Lock(const std::string& base) {
  const base::Instant end = base::Now() + kLockPatience;
  for (;;) {
    const bool is_new = mkdir(base.c_str(), 0700) == 0;
    if (!is_new && errno != EEXIST) return Unusable(base, strerror(errno));
    // Nobody else removes a folder that was made and never locked.
    absl::Cleanup remove_new = [&] {
      if (is_new) rmdir(base.c_str());
    };
    base::FileDescriptor lock(open(base.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status;
    if (!lock.valid() || fstat(lock.get(), &status) != 0) return Unusable(base, strerror(errno));
    // In another parent folder, any user may be allowed to make folders.
    if (status.st_uid != 0 || (status.st_mode & 0077) != 0) {
      return Unusable(base, "it does not belong to root alone; remove it, or choose another folder with --pin-dir");
    }
    while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return Unusable(base, absl::StrCat("flock: ", strerror(errno)));
      if (base::Now() > end) {
        return Unusable(base, "another collector uses it; end that one first, or choose another folder with --pin-dir");
      }
      base::PollUntil({}, base::Now() + kLockPause);
    }
    std::move(remove_new).Cancel();
    struct stat current;
    if (stat(base.c_str(), &current) == 0 && current.st_ino == status.st_ino) return lock;
    // The previous holder of the lock has removed the folder.
    if (base::Now() > end) return Unusable(base, "other collectors remove it again and again");
  }
}

}  // namespace

Pins::Pins(std::string base, std::string layout)
    : base_(std::move(base)), layout_(std::move(layout)), folder_(absl::StrCat(base_, "/", layout_)) {}

absl::StatusOr<Pins> Pins::Open(const std::string& base, absl::string_view layout) {
  const std::string parent = Parent(base);
  if (!IsBpfFileSystem(parent)) {
    if (parent != kMountPoint) {
      return Unusable(base, absl::StrCat(parent, " is not on a BPF file system; choose a folder in ", kMountPoint,
                                         " with --pin-dir"));
    }
    if (mount("bpf", parent.c_str(), "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=700") != 0) {
      return Unusable(base, absl::StrCat("no BPF file system can be mounted on ", parent, ": ", strerror(errno)));
    }
  }
  absl::StatusOr<base::FileDescriptor> lock = Lock(base);
  if (!lock.ok()) return lock.status();
  Pins pins(base, std::string(layout));
  pins.lock_ = *std::move(lock);
  if (mkdir(pins.folder_.c_str(), 0700) != 0 && errno != EEXIST) return Unusable(base, strerror(errno));
  return pins;
}

Pins::~Pins() {
  if (lock_.valid()) RemoveFolders();
}

pid_t Pins::Holder(const std::string& base) {
  struct stat folder;
  if (stat(base.c_str(), &folder) != 0) return 0;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    // "1: FLOCK  ADVISORY  WRITE 4711 00:1c:12345 0 EOF"
    pid_t pid = 0;
    unsigned major_number = 0;
    unsigned minor_number = 0;
    unsigned long long inode = 0;
    if (sscanf(line.c_str(), "%*d: FLOCK ADVISORY WRITE %d %x:%x:%llu", &pid, &major_number, &minor_number, &inode) ==
            4 &&
        makedev(major_number, minor_number) == folder.st_dev && inode == folder.st_ino) {
      return pid;
    }
  }
  return 0;
}

absl::Status Pins::Pin(int fd, const std::string& name) const {
  const std::string path = absl::StrCat(folder_, "/", name);
  if (bpf_obj_pin(fd, path.c_str()) == 0) return absl::OkStatus();
  return KernelError(errno, absl::StrCat("pinning ", path));
}

absl::StatusOr<base::FileDescriptor> Pins::Get(const std::string& name) const {
  const std::string path = absl::StrCat(folder_, "/", name);
  base::FileDescriptor fd(bpf_obj_get(path.c_str()));
  if (fd.valid()) return fd;
  if (errno == ENOENT) return absl::NotFoundError(absl::StrCat("nothing is pinned at ", path));
  return KernelError(errno, absl::StrCat("opening ", path));
}

bool Pins::Has(const std::string& name) const { return access(absl::StrCat(folder_, "/", name).c_str(), F_OK) == 0; }

void Pins::Remove(const std::string& name) const { unlink(absl::StrCat(folder_, "/", name).c_str()); }

std::vector<std::string> Pins::Names() const { return List(folder_); }

void Pins::RemoveAll() const {
  for (const std::string& name : Names()) Remove(name);
  RemoveFolders();
}

void Pins::RemoveFolders() const {
  rmdir(folder_.c_str());  // fails if something is pinned
  rmdir(base_.c_str());    // fails if another layout has pins
}

std::vector<std::string> Pins::OtherLayouts() const {
  std::vector<std::string> layouts = List(base_);
  std::erase(layouts, layout_);
  return layouts;
}

Pins Pins::Other(const std::string& layout) const { return Pins(base_, layout); }

}  // namespace heaptap::bpf
