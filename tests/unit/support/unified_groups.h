// SPDX-License-Identifier: Apache-2.0
//
// Control groups of version 2 for tests.
#ifndef HEAPTAP_TESTS_UNIT_SUPPORT_UNIFIED_GROUPS_H_
#define HEAPTAP_TESTS_UNIT_SUPPORT_UNIFIED_GROUPS_H_

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace heaptap {

// Where the hierarchy is mounted: alone, or beside those of version 1.
inline std::string UnifiedRoot() {
  constexpr char kOnly[] = "/sys/fs/cgroup";
  return access(absl::StrCat(kOnly, "/cgroup.controllers").c_str(), F_OK) == 0 ? kOnly
                                                                               : absl::StrCat(kOnly, "/unified");
}

// A group of this process. The destructor moves this process back to the root, and removes the group.
class UnifiedGroup {
 public:
  explicit UnifiedGroup(const std::string& name)
      : folder_(absl::StrCat(UnifiedRoot(), "/heaptap-unit-", getpid(), "-", name)) {
    EXPECT_EQ(mkdir(folder_.c_str(), 0755), 0) << folder_;
  }
  ~UnifiedGroup() {
    if (has_entered_) Write(UnifiedRoot());
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << folder_;
  }
  UnifiedGroup(const UnifiedGroup&) = delete;
  UnifiedGroup& operator=(const UnifiedGroup&) = delete;

  const std::string& folder() const { return folder_; }
  // Moves this process into the group.
  void Enter() {
    has_entered_ = true;
    Write(folder_);
  }

 private:
  static void Write(const std::string& folder) {
    std::ofstream file(folder + "/cgroup.procs");
    file << getpid() << std::flush;
    EXPECT_TRUE(file.good()) << folder;
  }

  const std::string folder_;
  bool has_entered_ = false;
};

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_SUPPORT_UNIFIED_GROUPS_H_
