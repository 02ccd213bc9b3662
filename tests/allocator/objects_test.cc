// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/objects.h"

#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace heaptap {
namespace {

TEST(Objects, FindFirstAnswersAsDlsym) {
  for (const char* name : {"getenv", "ldiv", "dl_iterate_phdr", "stdout", "pthread_key_create", "dlopen",
                           // In two versions, of which the second is the default one.
                           "realpath", "pthread_cond_wait"}) {
    EXPECT_EQ(FindFirst(name), dlsym(RTLD_DEFAULT, name)) << name;
    EXPECT_NE(FindFirst(name), nullptr) << name;
  }
}

TEST(Objects, WhatNobodyDefinesIsNotFound) {
  EXPECT_EQ(FindFirst("heaptap_nobody_defines_this"), nullptr);
  EXPECT_EQ(FindFirst(""), nullptr);
  // Only for programs that were linked with it in an old version.
  ASSERT_EQ(dlsym(RTLD_DEFAULT, "__malloc_hook"), nullptr);
  ASSERT_NE(dlvsym(RTLD_DEFAULT, "__malloc_hook", "GLIBC_2.2.5"), nullptr);
  EXPECT_EQ(FindFirst("__malloc_hook"), nullptr);
}

// This program is the first object.
TEST(Objects, FindNextBeginsBehindTheCaller) {
  EXPECT_EQ(FindNext("ldiv"), dlsym(RTLD_NEXT, "ldiv"));
  EXPECT_EQ(FindNext("main"), nullptr);
}

TEST(Objects, AnErrorOfDlsymStays) {
  dlerror();
  FindFirst("heaptap_nobody_defines_this");
  EXPECT_EQ(dlerror(), nullptr);
}

TEST(Objects, FindObjectAnswersAsDladdr) {
  Dl_info info;
  const void* function = dlsym(RTLD_DEFAULT, "ldiv");
  ASSERT_NE(dladdr(function, &info), 0);
  const LoadedObject object = FindObject(function);
  EXPECT_STREQ(object.name, info.dli_fname);
  EXPECT_EQ(object.base, reinterpret_cast<uintptr_t>(info.dli_fbase));
  static const int here = 0;
  EXPECT_STREQ(FindObject(&here).name, "");
  const int on_stack = 0;
  EXPECT_EQ(FindObject(&on_stack).name, nullptr);
}

TEST(Objects, AddressesOfOneObject) {
  const void* ldiv = dlsym(RTLD_DEFAULT, "ldiv");
  static const int here = 0;
  const int on_stack = 0;
  EXPECT_TRUE(IsSameObject(ldiv, dlsym(RTLD_DEFAULT, "lldiv")));
  EXPECT_FALSE(IsSameObject(ldiv, &here));
  EXPECT_FALSE(IsSameObject(&on_stack, &on_stack));
}

// Old linkers write only DT_HASH. The names of an object are few here, so that they share buckets.
TEST(Objects, FindsNamesByTheOldHashToo) {
  const char strings[] = "\0one\0two\0three\0hidden\0undefined";
  const std::vector<const char*> names = {"", "one", "two", "three", "hidden", "undefined"};
  std::vector<ElfW(Sym)> symbols(names.size());
  std::vector<uint16_t> versions(names.size(), 1);
  size_t offset = 0;
  for (size_t i = 0; i < names.size(); i++) {
    symbols[i].st_name = static_cast<ElfW(Word)>(offset);
    symbols[i].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    symbols[i].st_shndx = 1;
    symbols[i].st_value = 0x1000 * i;
    offset += strlen(names[i]) + 1;
  }
  versions[4] = 0x8002;
  symbols[5].st_shndx = SHN_UNDEF;
  // One bucket: the chain runs through all symbols.
  const uint32_t hashes[] = {1, 6, 5, 0, 0, 1, 2, 3, 4};
  ObjectTables tables;
  tables.symbols = symbols.data();
  tables.strings = strings;
  tables.hashes = hashes;
  tables.versions = versions.data();
  for (size_t i = 1; i <= 3; i++) EXPECT_EQ(FindDefinition(tables, names[i]), &symbols[i]) << names[i];
  for (const char* name : {"hidden", "undefined", "four", ""}) EXPECT_EQ(FindDefinition(tables, name), nullptr) << name;
  EXPECT_EQ(CountSymbols(tables), names.size());
}

// Linkers put the strings behind the symbols.
TEST(Objects, CountsTheSymbolsOfEachObject) {
  const auto look = [](dl_phdr_info* object, size_t, void* looked_at) {
    const ObjectTables tables = ReadTables(*object);
    if (tables.gnu_hashes == nullptr) return 0;
    const auto bytes = static_cast<size_t>(tables.strings - reinterpret_cast<const char*>(tables.symbols));
    EXPECT_EQ(CountSymbols(tables), bytes / sizeof(ElfW(Sym))) << object->dlpi_name;
    ++*static_cast<int*>(looked_at);
    return 0;
  };
  int objects = 0;
  dl_iterate_phdr(look, &objects);
  EXPECT_GT(objects, 1);
}

TEST(Objects, ThisProgramIsThisLibrary) {
  std::vector<bool> found;
  const auto look = [](dl_phdr_info* object, size_t, void* all) {
    static_cast<std::vector<bool>*>(all)->push_back(IsThisLibrary(*object));
    return 0;
  };
  dl_iterate_phdr(look, &found);
  ASSERT_GT(found.size(), 1U);
  EXPECT_TRUE(found[0]);
  EXPECT_EQ(std::count(found.begin(), found.end(), true), 1);
}

}  // namespace
}  // namespace heaptap
