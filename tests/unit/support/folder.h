// SPDX-License-Identifier: Apache-2.0
//
// A temporary folder for a test, and functions for whole files.
#ifndef HEAPTAP_TESTS_UNIT_SUPPORT_FOLDER_H_
#define HEAPTAP_TESTS_UNIT_SUPPORT_FOLDER_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace heaptap {

// Removed with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(::testing::TempDir() + "heaptap_test.XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr) << path_;
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

  // The path of a file in it.
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

// "" if there is no such file.
inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void WriteFile(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  EXPECT_TRUE(file.good()) << path;
}

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_SUPPORT_FOLDER_H_
