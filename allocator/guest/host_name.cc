// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/host_name.h"

#include <stdint.h>
#include <string.h>

#include "allocator/core/control.h"
#include "allocator/guest/host.h"
#include "allocator/platform/objects.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

template <typename Function>
Function FindFunction(const char* name) {
  return reinterpret_cast<Function>(FindInHost(name));
}

// jemalloc's version is "5.3.0-0-g54eaed1d8b56"; the part after the hyphen names a commit.
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
  const char* file = FindObject(host_facts.malloc).name;
  if (file == nullptr) return;
  const char* slash = strrchr(file, '/');
  name << (slash != nullptr ? slash + 1 : file);
}

}  // namespace

void PublishHostName() {
  Message name;
  if (const auto mallctl = FindFunction<int (*)(const char*, void*, size_t*, void*, size_t)>("mallctl")) {
    NameJemalloc(name, mallctl);
  } else if (const auto version = FindFunction<const char* (*)(int*, int*, const char**)>("tc_version")) {
    name << "tcmalloc " << version(nullptr, nullptr, nullptr);
  } else if (const auto version = FindFunction<int (*)()>("mi_version")) {
    NameMimalloc(name, version);
  } else if (const auto version = FindFunction<const char* (*)()>("gnu_get_libc_version")) {
    name << "glibc " << version();
  } else if (host_facts.is_musl) {
    name << "musl";  // it does not say its version
  } else {
    NameFile(name);
  }
  control::SetHost(name.text());
}

}  // namespace heaptap
