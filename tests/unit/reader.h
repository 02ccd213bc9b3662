// SPDX-License-Identifier: Apache-2.0
//
// Runs programs that read what heaptap writes.
#ifndef HEAPTAP_TESTS_UNIT_READER_H_
#define HEAPTAP_TESTS_UNIT_READER_H_

#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace heaptap {

struct Output {
  int status;
  std::string out;
  std::string err;
};

// A folder for the files of one test, gone after it.
class Reader {
 public:
  Reader() {
    char directory[] = "/tmp/heaptap_reader_XXXXXX";
    EXPECT_NE(mkdtemp(directory), nullptr);
    directory_ = directory;
  }
  ~Reader() { std::filesystem::remove_all(directory_); }

  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  std::string Path(const std::string& name) const { return absl::StrCat(directory_, "/", name); }

  // Writes a file and returns its path.
  std::string Write(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
    return Path(name);
  }

  // Runs a command of the shell, at home in the folder.
  Output Run(const std::string& command) const {
    int status = system(
        absl::StrCat("cd ", directory_, " && HOME=", directory_, " ", command, " >", Path("out"), " 2>", Path("err"))
            .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, Read("out"), Read("err")};
  }

 private:
  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  std::string directory_;
};

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_READER_H_
