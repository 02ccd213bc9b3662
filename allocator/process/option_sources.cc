// SPDX-License-Identifier: Apache-2.0
#include "allocator/process/option_sources.h"

#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#include "allocator/platform/libc.h"
#include "allocator/platform/system.h"

extern "C" {
const char* malloc_conf;
const char* malloc_conf_2_conf_harder;
}

namespace heaptap {
namespace {

char symbolic_link[PATH_MAX + 1];
OptionTexts sources;

// The text of the link holds the options; its target need not exist.
const char* SymbolicLinkText() {
  constexpr char kPath[] = "/etc/malloc.conf";
  long length = SystemCall(SYS_readlinkat, AT_FDCWD, reinterpret_cast<long>(kPath),
                           reinterpret_cast<long>(symbolic_link), PATH_MAX);
  if (length <= 0) return nullptr;
  symbolic_link[length] = '\0';
  return symbolic_link;
}

}  // namespace

const char* FindVariable(char** environment, const char* name) {
  const size_t length = strlen(name);
  if (environment == nullptr || length == 0) return nullptr;
  for (char** entry = environment; *entry != nullptr; entry++) {
    if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  }
  return nullptr;
}

bool HasMoreRightsThanItsUser() { return getauxval(AT_SECURE) != 0; }

const char* EnvironmentVariable(const char* name) {
  return HasMoreRightsThanItsUser() ? nullptr : FindVariable(libc::Environment(), name);
}

OptionTexts ReadOptionSources() {
  sources.text[kProgram] = malloc_conf;
  sources.text[kSymbolicLink] = SymbolicLinkText();
  sources.text[kEnvironmentVariable] = EnvironmentVariable("MALLOC_CONF");
  sources.text[kProgramHarder] = malloc_conf_2_conf_harder;
  return sources;
}

const char* OptionText(OptionSource source) { return sources.text[source]; }

}  // namespace heaptap
