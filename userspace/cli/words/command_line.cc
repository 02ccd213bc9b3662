// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/words/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/messages.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/cli/words/help_text.h"

namespace heaptap::cli {
namespace {

// Keeps validators out of --help: the options' help texts describe the values.
constexpr char kNoDescription[] = "";

constexpr char kHelp[] = "help";

// The distance up to which a word is considered a mistyped command.
constexpr size_t kMaxEdits = 2;

// Levenshtein distance: the number of letters to insert, delete or replace.
size_t Edits(const std::string& from, const std::string& to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < from.size(); i++) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < to.size(); j++) {
      const size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// Checks that the word is a whole number.
CLI::Option* Whole(CLI::Option* option) {
  return option->check(CLI::Validator(
      [](const std::string& text) {
        int number = 0;
        return absl::SimpleAtoi(text, &number) ? "" : absl::StrCat("'", text, "' is not a whole number");
      },
      kNoDescription));
}

template <typename Number>
CLI::Option* NotBelowZero(CLI::Option* option) {
  return option->check(CLI::Validator(
      [](const std::string& text) {
        Number number = 0;
        return absl::SimpleAtoi(text, &number) ? ""
                                               : absl::StrCat("'", text, "' is not a whole number of 0 or more",
                                                              sizeof(Number) == 4 ? " that fits 32 bits" : "");
      },
      kNoDescription));
}

CLI::Option* Fraction(CLI::Option* option) {
  return option->check(CLI::Validator(
      [](const std::string& text) {
        double number = 0;
        const bool is_number = absl::SimpleAtod(text, &number) && std::isfinite(number);
        return is_number ? "" : absl::StrCat("'", text, "' is not a number");
      },
      kNoDescription));
}

// CLI11's own message about a size lists all units in all spellings.
std::string ReadSize(std::string& text) {
  const std::string word = text;
  std::string refusal = absl::StrCat("'", word, "' is not a size; use a number with K, M or G, such as 64M");
  try {
    return CLI::AsSizeValue(false)(text).empty() ? "" : refusal;
  } catch (const CLI::ValidationError&) {
    return refusal;
  }
}

}  // namespace

Option Option::Required() {
  option_->required();
  return *this;
}

Option Option::Type(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option Option::CommandLineOnly() {
  option_->configurable(false);
  return *this;
}

Option Option::Excludes(Option other) {
  option_->excludes(other.option_);
  return *this;
}

Option Option::Check(std::function<std::string(const std::string&)> check) {
  option_->check(CLI::Validator(std::move(check), kNoDescription));
  return *this;
}

Option Option::AboveZero() {
  // CLI11's own check prints the limits of a double with 300 digits.
  return Check([](const std::string& text) {
    double number = 0;
    return absl::SimpleAtod(text, &number) && number > 0 ? "" : absl::StrCat("'", text, "' is not a number above 0");
  });
}

Option Option::NotNegative() {
  return Check([](const std::string& text) {
    double number = 0;
    return absl::SimpleAtod(text, &number) && number >= 0 ? "" : absl::StrCat("'", text, "' is not 0 or more");
  });
}

Option Option::Range(int least, int most) {
  return Check([least, most](const std::string& text) {
    int number = 0;
    const bool is_in = absl::SimpleAtoi(text, &number) && number >= least && number <= most;
    return is_in ? "" : absl::StrCat("'", text, "' is not a whole number from ", least, " to ", most);
  });
}

Option Option::OneOf(const std::vector<std::string>& words) {
  option_->type_name(absl::StrJoin(words, "|"));
  return Check([words](const std::string& text) {
    const bool is_one = std::ranges::find(words, text) != words.end();
    return is_one ? "" : absl::StrCat("'", text, "' is none of ", absl::StrJoin(words, ", "));
  });
}

Option Option::Bytes() {
  // A transform runs before the checks, so the checks see the number.
  option_->transform(CLI::Validator(ReadSize, kNoDescription));
  return *this;
}

std::string Option::name() const { return option_->get_single_name(); }
bool Option::is_flag() const { return option_->get_expected_min() == 0; }
bool Option::is_repeatable() const { return option_->get_expected_max() > 1; }
bool Option::is_given() const { return option_->count() > 0; }

std::string Option::FlagValue(const std::string& text) const {
  return option_->get_flag_value(option_->get_single_name(), text);
}

std::vector<Option> Option::excluded() const {
  std::vector<Option> others;
  for (CLI::Option* other : option_->get_excludes()) others.push_back(Option(other));
  return others;
}

absl::Status Option::Set(const std::vector<std::string>& values) {
  try {
    option_->add_result(values);
    option_->run_callback();
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(base::AsciiOnly(error.what()));
  }
  return absl::OkStatus();
}

Option Command::Add(const std::string& names, std::string& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
Option Command::Add(const std::string& names, int& value, const std::string& help) {
  return Option(Whole(app_->add_option(names, value, help)));
}
Option Command::Add(const std::string& names, uint32_t& value, const std::string& help) {
  return Option(NotBelowZero<uint32_t>(app_->add_option(names, value, help)));
}
Option Command::Add(const std::string& names, uint64_t& value, const std::string& help) {
  return Option(NotBelowZero<uint64_t>(app_->add_option(names, value, help)));
}
Option Command::Add(const std::string& names, double& value, const std::string& help) {
  return Option(Fraction(app_->add_option(names, value, help)));
}
Option Command::Add(const std::string& names, std::optional<uint64_t>& value, const std::string& help) {
  return Option(NotBelowZero<uint64_t>(app_->add_option(names, value, help)));
}
Option Command::Add(const std::string& names, std::optional<double>& value, const std::string& help) {
  return Option(Fraction(app_->add_option(names, value, help)));
}
Option Command::Add(const std::string& names, std::vector<std::string>& values, const std::string& help) {
  return Option(app_->add_option(names, values, help));
}
Option Command::Add(const std::string& names, std::vector<int>& values, const std::string& help) {
  return Option(Whole(app_->add_option(names, values, help)));
}
Option Command::AddFlag(const std::string& names, bool& value, const std::string& help) {
  return Option(app_->add_flag(names, value, help));
}
Option Command::AddFlag(const std::string& name, int value_without, int& value, const std::string& help) {
  CLI::Option* option = app_->add_flag(absl::StrCat(name, "{", value_without, "}"), value, help);
  // CLI11 counts flags with an integer: it adds their values. For an absent flag it sets 0, and since 2.4 also checks
  // it.
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->force_callback(false)->default_str("");
  return Option(option);
}

void Command::Footer(const std::string& text) { app_->footer(text); }

void Command::Runs(std::function<int()> action) {
  app_->callback([action = std::move(action), chosen = chosen_] { *chosen = action; });
}

void Command::EndsAtFirstWord() { app_->prefix_command(); }

std::vector<std::string> Command::Rest() const { return app_->remaining(); }

bool Command::IsGiven(const std::string& name) const { return app_->count(name) != 0; }

std::string Command::name() const { return app_->get_name(); }

std::optional<Option> Command::FindConfigurable(const std::string& name) const {
  CLI::Option* option = name.empty() ? nullptr : app_->get_option_no_throw(absl::StrCat("--", name));
  if (option == nullptr || !option->get_configurable()) return std::nullopt;
  return Option(option);
}

CommandLine::CommandLine()
    : app_(std::make_unique<CLI::App>("Profile the heap of running programs: show which call paths hold memory.",
                                      "heaptap")) {
  app_->formatter(std::make_shared<HelpText>());
  app_->require_subcommand(1);
  app_->set_version_flag("-V,--version", "heaptap " HEAPTAP_VERSION);
  app_->footer(
      "Exit status: 0 success, 1 failure, 2 wrong usage, 3 no such target, 4 missing permission;\n"
      "`heaptap run` returns the program's own status (128 + signal if a signal ended it).");
}

CommandLine::~CommandLine() = default;

Command CommandLine::AddCommand(const std::string& name, const std::string& help) {
  return Command(app_->add_subcommand(name, help), &action_);
}

absl::Status CommandLine::Parse(std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // CLI11 reads them from the end
  try {
    app_->parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return absl::OkStatus();
}

std::string CommandLine::FindSimilar(const std::string& word) const {
  std::string similar;
  size_t least = kMaxEdits + 1;
  for (const CLI::App* command : app_->get_subcommands([](const CLI::App*) { return true; })) {
    const size_t edits = Edits(word, command->get_name());
    if (edits >= least) continue;
    least = edits;
    similar = command->get_name();
  }
  return similar;
}

int CommandLine::SayInvalid(const std::string& what, const CLI::App* command) {
  const std::string name = command == nullptr ? "" : absl::StrCat(command->get_name(), " ");
  base::Say(absl::StrCat(base::AsciiOnly(what), "; see heaptap ", name, "--help"));
  return kUsage;
}

int CommandLine::Run(const std::vector<std::string>& words) {
  if (words.empty()) {
    base::Say("no command given; heaptap --help lists all commands");
    for (const std::string& line : for_a_start_) base::SayPlain(line);
    return kUsage;
  }
  if (words[0] == kHelp) {
    if (words.size() == 1) return Run({"--help"});
    return Run({words[1], "--help"});
  }
  const bool names_command = !absl::StartsWith(words[0], "-");
  const std::vector<CLI::App*> named =
      names_command ? app_->get_subcommands([&](CLI::App* command) { return command->check_name(words[0]); })
                    : std::vector<CLI::App*>();
  // CLI11 would only report a missing command, not the wrong word.
  if (names_command && named.empty()) {
    const std::string similar = FindSimilar(words[0]);
    base::Say(absl::StrCat("unknown command ", base::AsciiOnly(words[0]),
                           similar.empty() ? "" : absl::StrCat(" (did you mean ", similar, "?)"),
                           "; see heaptap --help"));
    return kUsage;
  }
  try {
    app_->parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& help) {
    return app_->exit(help);
  } catch (const CLI::ParseError& error) {
    // CLI11 would report a missing command, if anything.
    if (named.empty()) return SayInvalid(absl::StrCat("unknown option ", words[0]), nullptr);
    const std::vector<std::string> rest = named[0]->remaining();
    const bool is_surplus = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) && !rest.empty();
    if (!is_surplus) return SayInvalid(error.what(), named[0]);
    return SayInvalid(
        absl::StrCat(absl::StartsWith(rest[0], "-") ? "unknown option " : "unexpected argument ", rest[0]), named[0]);
  }
  return action_ ? action_() : kSuccess;
}

}  // namespace heaptap::cli
