// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/host_name.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <stdint.h>
#include <string.h>

#include "allocator/core/control.h"
#include "allocator/guest/host.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

// A function of the library that has the host's malloc. nullptr: it has none of this name.
template <typename Function>
Function FindInHost(const char* name) {
  Dl_info info, hosts;
  void* function = FindNext(name);
  if (function == nullptr || dladdr(function, &info) == 0 || dladdr(host_facts.malloc, &hosts) == 0) return nullptr;
  return info.dli_fbase == hosts.dli_fbase ? reinterpret_cast<Function>(function) : nullptr;
}

// jemalloc's version is "5.3.0-0-g54eaed1d8b56"; the part behind the hyphen names a commit.
void NameJemalloc(Message& name, int (*mallctl)(const char*, void*, size_t*, void*, size_t)) {
  const char* version = nullptr;
  size_t length = sizeof(version);
  name << "jemalloc";
  if (mallctl("version", &version, &length, nullptr, 0) != 0 || version == nullptr) return;
  name << " ";
  name.Append(version, strcspn(version, "-"));
}

// mimalloc's version is 209 for 2.0.9; from 2.2 on it may have more digits.
void NameMimalloc(Message& name, int (*version)()) {
  const uint64_t number = static_cast<uint64_t>(version());
  const uint64_t patches = number < 1000 ? 10 : 100;
  name << "mimalloc " << number / (patches * 10) << "." << number / patches % 10 << "." << number % patches;
}

void NameFile(Message& name) {
  Dl_info info;
  if (dladdr(host_facts.malloc, &info) == 0 || info.dli_fname == nullptr) return;
  const char* slash = strrchr(info.dli_fname, '/');
  name << (slash != nullptr ? slash + 1 : info.dli_fname);
}

}  // namespace

void PublishHostName() {
  Message name;
  if (const auto mallctl = FindInHost<int (*)(const char*, void*, size_t*, void*, size_t)>("mallctl")) {
    NameJemalloc(name, mallctl);
  } else if (const auto version = FindInHost<const char* (*)(int*, int*, const char**)>("tc_version")) {
    name << "tcmalloc " << version(nullptr, nullptr, nullptr);
  } else if (const auto version = FindInHost<int (*)()>("mi_version")) {
    NameMimalloc(name, version);
  } else if (const auto version = FindInHost<const char* (*)()>("gnu_get_libc_version")) {
    name << "glibc " << version();
  } else {
    NameFile(name);
  }
  control::SetHost(name.text());
}

}  // namespace heaptap
