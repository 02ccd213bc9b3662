// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/words/help_text.h"

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace heaptap::cli {
namespace {

constexpr size_t kWidth = 80;
// Where the help of an option or a command begins.
constexpr size_t kHelpColumn = 30;

// The words in lines of at most kWidth letters that begin at `indent`; a longer word has its own line. `line`: what the
// first line holds already. Line ends in the text are kept.
std::string Wrap(absl::string_view text, std::string line, size_t indent) {
  std::string lines;
  const auto end_line = [&] {
    absl::StrAppend(&lines, absl::StripTrailingAsciiWhitespace(line), "\n");
    line.assign(indent, ' ');
  };
  for (const absl::string_view part : absl::StrSplit(text, '\n')) {
    for (const absl::string_view word : absl::StrSplit(part, ' ', absl::SkipEmpty())) {
      const bool has_text = line.size() > indent;
      if (has_text && line.size() + 1 + word.size() > kWidth) end_line();
      absl::StrAppend(&line, line.size() > indent ? " " : "", word);
    }
    end_line();
  }
  return lines;
}

// A row of a list: what it is about, and the help in a column of its own.
std::string Row(absl::string_view name, absl::string_view help) {
  std::string line = absl::StrCat("  ", name);
  std::string before;
  // Two blanks tell the columns apart.
  if (line.size() + 2 > kHelpColumn) before = absl::StrCat(std::exchange(line, ""), "\n");
  line.resize(kHelpColumn, ' ');
  return before + Wrap(help, std::move(line), kHelpColumn);
}

}  // namespace

std::string HelpText::make_description(const CLI::App* app) const { return Wrap(app->get_description(), "", 0); }

std::string HelpText::make_usage(const CLI::App* app, std::string name) const {
  std::string usage = CLI::Formatter::make_usage(app, std::move(name));
  // CLI11 knows nothing of the words after the options.
  if (app->get_prefix_command()) usage.insert(usage.find_last_not_of('\n') + 1, " [--] PROGRAM [ARGUMENTS...]");
  return usage;
}

std::string HelpText::make_footer(const CLI::App* app) const {
  return app->get_footer().empty() ? "" : Wrap(app->get_footer(), "", 0);
}

std::string HelpText::make_subcommand(const CLI::App* app) const {
  return Row(app->get_display_name(true), app->get_description());
}

std::string HelpText::make_option(const CLI::Option* option, bool is_positional) const {
  return Row(absl::StrCat(make_option_name(option, is_positional), make_option_opts(option)), make_option_desc(option));
}

std::string HelpText::make_option_name(const CLI::Option* option, bool is_positional) const {
  if (is_positional) return option->get_name(true, false);
  // CLI11 would add the value of a flag that has one, in braces.
  std::vector<std::string> names;
  for (const std::string& name : option->get_snames()) names.push_back(absl::StrCat("-", name));
  for (const std::string& name : option->get_lnames()) names.push_back(absl::StrCat("--", name));
  return absl::StrJoin(names, ",");
}

std::string HelpText::make_option_opts(const CLI::Option* option) const {
  if (option->get_type_size() == 0) return "";
  const std::string& type = option->get_type_name();
  if (option->get_expected_min() == 0) return type.empty() ? "" : absl::StrCat("[=", type, "]");
  const bool is_list = option->get_expected_max() == CLI::detail::expected_max_vector_size;
  return absl::StrCat(type.empty() ? "" : " ", type, is_list ? " ..." : "", option->get_required() ? " REQUIRED" : "");
}

}  // namespace heaptap::cli
