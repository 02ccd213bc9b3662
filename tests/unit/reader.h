// SPDX-License-Identifier: Apache-2.0
//
// Runs programs that read heaptap's files.
#ifndef HEAPTAP_TESTS_UNIT_READER_H_
#define HEAPTAP_TESTS_UNIT_READER_H_

#include <stdlib.h>
#include <sys/wait.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/unit/support/folder.h"

namespace heaptap {

struct Output {
  int status;
  std::string out;
  std::string err;
};

// A folder for the files of one test, removed after it.
class Reader {
 public:
  std::string Path(const std::string& name) const { return folder_ / name; }

  // Writes a file and returns its path.
  std::string Write(const std::string& name, const std::string& content) const {
    WriteFile(Path(name), content);
    return Path(name);
  }

  // Runs a command of the shell, at home in the folder.
  Output Run(const std::string& command) const {
    int status = system(absl::StrCat("cd ", folder_.path(), " && HOME=", folder_.path(), " ", command, " >",
                                     Path("out"), " 2>", Path("err"))
                            .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile(Path("out")), ReadFile(Path("err"))};
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_READER_H_
