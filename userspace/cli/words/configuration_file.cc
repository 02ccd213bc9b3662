// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/words/configuration_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/messages.h"

namespace heaptap::cli {
namespace {

// A thousand rules take a tenth of this.
constexpr size_t kMaxBytes = 1 << 20;

// The values of one option in a file.
struct Setting {
  Option option;
  int line;  // of the first value
  std::vector<std::string> values = {};
};
using Settings = std::vector<Setting>;

Settings::const_iterator Find(const Settings& settings, Option option) {
  return std::find_if(settings.begin(), settings.end(), [&](const Setting& one) { return one.option == option; });
}

absl::Status Wrong(absl::string_view path, int line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ", line ", line, ": ", what));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const auto failure = [&path](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read the configuration file ", path, ": ", why));
  };
  // O_NONBLOCK: opening a pipe would block.
  const base::FileDescriptor fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return absl::NotFoundError(absl::StrCat("there is no configuration file ", path));
  struct stat status;
  if (!fd.valid() || fstat(fd.get(), &status) != 0) return failure(strerror(errno));
  if (!S_ISREG(status.st_mode)) return failure("it is not a regular file");
  std::string text(kMaxBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure(strerror(errno));
    if (got == 0) break;
    size += got;
  }
  if (size > kMaxBytes) return failure("it is larger than 1 MiB");
  text.resize(size);
  return text;
}

absl::string_view WithoutQuotes(absl::string_view value) {
  const bool is_quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return is_quoted ? value.substr(1, value.size() - 2) : value;
}

// Adds the setting of one line. The caller adds file and line to the error.
absl::Status AddLine(absl::string_view line, int number, const Command& command, Settings& settings) {
  const std::pair<absl::string_view, absl::string_view> pair = absl::StrSplit(line, absl::MaxSplits('=', 1));
  const std::string name(absl::StripAsciiWhitespace(pair.first));
  const bool has_value = absl::StrContains(line, '=');
  std::string value(WithoutQuotes(absl::StripAsciiWhitespace(pair.second)));
  const std::optional<Option> option = command.FindConfigurable(name);
  if (!option.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no option ", base::AsciiOnly(name), "; see heaptap ", command.name(), " --help"));
  }
  if (!has_value && !option->is_flag())
    return absl::InvalidArgumentError(absl::StrCat(name, ": expected ", name, "=VALUE"));
  if (has_value && option->is_flag() && value.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, "=: expected a value, or the name alone"));
  }
  if (option->is_flag()) {
    if (value == "false") return absl::OkStatus();
    value = option->FlagValue(value);
  }
  const auto found = Find(settings, *option);
  if (found == settings.end()) {
    settings.push_back({.option = *option, .line = number, .values = {std::move(value)}});
    return absl::OkStatus();
  }
  if (!option->is_repeatable()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is already set in line ", found->line));
  }
  settings[found - settings.begin()].values.push_back(std::move(value));
  return absl::OkStatus();
}

// Sets an option, unless the command line takes precedence.
absl::Status Apply(const Setting& setting, const Settings& all) {
  Option option = setting.option;
  for (const Option& other : option.excluded()) {
    if (Find(all, other) != all.end()) {
      return absl::InvalidArgumentError(absl::StrCat(option.name(), " and ", other.name(), " cannot be combined"));
    }
    if (other.is_given()) return absl::OkStatus();
  }
  return option.is_given() ? absl::OkStatus() : option.Set(setting.values);
}

}  // namespace

absl::Status ApplyConfigurationFile(const std::string& path, Command command) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  Settings settings;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    number++;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    const absl::Status status = AddLine(line, number, command, settings);
    if (!status.ok()) return Wrong(path, number, status.message());
  }
  for (const Setting& setting : settings) {
    const absl::Status status = Apply(setting, settings);
    if (!status.ok()) return Wrong(path, setting.line, status.message());
  }
  return absl::OkStatus();
}

}  // namespace heaptap::cli
