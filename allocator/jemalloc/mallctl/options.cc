// SPDX-License-Identifier: Apache-2.0
//
// opt.*: the options as of the start of the process; config.*: the build of the library.
#include "allocator/process/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/process/option_sources.h"
#include "allocator/process/process.h"

namespace heaptap {
namespace {

// --- opt -------------------------------------------------------------------------------------------------------------

template <OptionSource kSource>
int SourceText(const Request& request) {
  const char* text = OptionText(kSource);
  return text == nullptr ? ENOENT : request.ReadOnly(text);
}

constexpr Node kSourceNodes[] = {
    Leaf("symlink", SourceText<kSymbolicLink>),
    Leaf("env_var", SourceText<kEnvironmentVariable>),
    Leaf("global_var", SourceText<kProgram>),
    Leaf("global_var_2_conf_harder", SourceText<kProgramHarder>),
};
constexpr NodeList kSources = ListOf(kSourceNodes);

constexpr Node kOptionNodes[] = {
    Inner("malloc_conf", kSources),
};
constexpr size_t kOptionNodeCount = sizeof(kOptionNodes) / sizeof(kOptionNodes[0]);

// The readable options, in the order of the table.
const Option* ReadableOption(size_t number) {
  for (size_t i = 0; i < kOptionCount; i++) {
    if (kOptions[i].readable && number-- == 0) return &kOptions[i];
  }
  return nullptr;
}

const char* OptionName(size_t number) {
  const Option* option = ReadableOption(number);
  return option == nullptr ? nullptr : option->name;
}

template <typename Value>
int ReadField(const Request& request, const char* field) {
  Value value;
  memcpy(&value, field, sizeof(value));
  return request.ReadOnly(value);
}

int ReadRatio(const Request& request, const char* field) {
  const int error = ReadField<uint32_t>(request, field);
  uint32_t ratio;
  memcpy(&ratio, field, sizeof(ratio));
  if (request.report != nullptr) *request.report = StatisticsValue::Ratio(ratio);
  return error;
}

int ReadOption(const Request& request) {
  const Option& option = *ReadableOption(request.mib[1] - kOptionNodeCount);
  const char* field = reinterpret_cast<const char*>(&ProcessConfiguration()) + option.offset;
  switch (option.type) {
    case OptionType::kBool:
      return ReadField<bool>(request, field);
    case OptionType::kUnsigned:
      return ReadField<uint32_t>(request, field);
    case OptionType::kRatio:
      return ReadRatio(request, field);
    case OptionType::kSize:
    case OptionType::kLogarithm:
      return ReadField<size_t>(request, field);
    case OptionType::kSigned:
      return ReadField<ssize_t>(request, field);
    case OptionType::kChoice:
      return request.ReadOnly(option.choices.words[static_cast<uint8_t>(*field)]);
    case OptionType::kText:
    case OptionType::kLetters:
      return request.ReadOnly(field);
    case OptionType::kIgnored:
      break;
  }
  return ENOENT;
}

// --- config ----------------------------------------------------------------------------------------------------------

int BuiltInOptions(const Request& request) { return request.ReadOnly(static_cast<const char*>("")); }

// All three prof_* values are false: stacks are unwound outside of the process.
constexpr Node kConfigNodes[] = {
    Shown("cache_oblivious", Constant<false>),
    Shown("debug", Constant<kDebugBuild>),
    Shown("fill", Constant<true>),
    Leaf("infallible_new", Constant<false>),
    Shown("lazy_lock", Constant<false>),
    Shown("malloc_conf", BuiltInOptions),
    Shown("opt_safety_checks", Constant<false>),
    Shown("prof", Constant<true>),
    Shown("prof_libgcc", Constant<false>),
    Shown("prof_libunwind", Constant<false>),
    Shown("prof_frameptr", Constant<false>),
    Shown("stats", Constant<true>),
    Shown("utrace", Constant<false>),
    Shown("xmalloc", Constant<true>),
};

}  // namespace

constexpr NodeList kOptionNames = {kOptionNodes, kOptionNodeCount, nullptr, OptionName, ReadOption};
constexpr NodeList kConfigNames = ListOf(kConfigNodes);

}  // namespace heaptap
