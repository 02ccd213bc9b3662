// SPDX-License-Identifier: Apache-2.0
//
// Names of processes for a line of text: each name once, with how many processes have it.
//
// Not thread-safe.
#ifndef HEAPTAP_USERSPACE_PROFILES_COUNTED_NAMES_H_
#define HEAPTAP_USERSPACE_PROFILES_COUNTED_NAMES_H_

#include <cstddef>
#include <map>
#include <string>

namespace heaptap::recording {

class CountedNames {
 public:
  // Names that the text has. A script starts any number of programs, so no more are remembered.
  static constexpr size_t kMost = 8;

  void Add(const std::string& name);
  // Processes, with those whose names are not remembered.
  size_t processes() const { return processes_; }
  bool empty() const { return processes_ == 0; }
  // "cc1 (3 times), ls"; "..." stands for the names that are not remembered.
  std::string Text() const;

 private:
  std::map<std::string, size_t> counts_;
  size_t processes_ = 0;
  bool has_more_ = false;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_PROFILES_COUNTED_NAMES_H_
