// SPDX-License-Identifier: Apache-2.0
//
// A file descriptor with one owner, which closes it when it is destroyed. Thread-compatible.
#ifndef HEAPTAP_USERSPACE_BASE_FILE_DESCRIPTOR_H_
#define HEAPTAP_USERSPACE_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace heaptap::base {

class FileDescriptor {
 public:
  // Without a descriptor.
  FileDescriptor() = default;
  // Takes over `fd`; negative: none.
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  ~FileDescriptor() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

  // Hands the descriptor to the caller, who closes it.
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }

  // Closes the descriptor and takes over `fd`.
  void Reset(int fd = -1) {
    int old = std::exchange(fd_, fd);
    // Linux frees the number even when close() fails, so a retry would be wrong.
    if (old >= 0) close(old);
  }

 private:
  int fd_ = -1;
};

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_FILE_DESCRIPTOR_H_
