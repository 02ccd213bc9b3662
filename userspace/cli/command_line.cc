// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/cli/exit_status.h"
#include "userspace/service/messages.h"

namespace heaptap::cli {
namespace {

// Validators print themselves in --help by a description; the options' help texts say all that is to be said.
constexpr char kNoDescription[] = "";

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
  // The message of CLI11's own check shows the limits of a double with 300 digits.
  return Check([](const std::string& text) {
    double number = 0;
    return absl::SimpleAtod(text, &number) && number > 0 ? "" : absl::StrCat("'", text, "' is not a number above 0");
  });
}

Option Option::NotNegative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

Option Option::Range(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option Option::OneOf(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return *this;
}

Option Option::Bytes() {
  option_->transform(CLI::AsSizeValue(false));
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
    return absl::InvalidArgumentError(service::Printable(error.what()));
  }
  return absl::OkStatus();
}

Option Command::Add(const std::string& names, std::string& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
Option Command::Add(const std::string& names, int& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
Option Command::Add(const std::string& names, uint32_t& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
Option Command::Add(const std::string& names, uint64_t& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
Option Command::Add(const std::string& names, double& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
Option Command::Add(const std::string& names, std::optional<uint64_t>& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
Option Command::Add(const std::string& names, std::optional<double>& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}
Option Command::Add(const std::string& names, std::vector<std::string>& values, const std::string& help) {
  return Option(app_->add_option(names, values, help));
}
Option Command::Add(const std::string& names, std::vector<int>& values, const std::string& help) {
  return Option(app_->add_option(names, values, help));
}
Option Command::AddFlag(const std::string& names, bool& value, const std::string& help) {
  return Option(app_->add_flag(names, value, help));
}
Option Command::AddFlag(const std::string& name, int value_without, int& value, const std::string& help) {
  return Option(app_->add_flag(absl::StrCat(name, "{", value_without, "}"), value, help));
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
    : app_(std::make_unique<CLI::App>("Who holds the heap of a running program, and through which call path.",
                                      "heaptap")) {
  app_->require_subcommand(1);
  app_->set_version_flag("-V,--version", "heaptap " HEAPTAP_VERSION);
  app_->footer(
      "Exit status: 0 success, 1 failure, 2 wrong usage, 3 no such target, 4 missing permission;\n"
      "`heaptap run` passes on that of the program (128 + signal if a signal ended it).");
}

CommandLine::~CommandLine() = default;

Command CommandLine::AddCommand(const std::string& name, const std::string& help) {
  return Command(app_->add_subcommand(name, help), &action_);
}

absl::Status CommandLine::Parse(std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the end
  try {
    app_->parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return absl::OkStatus();
}

int CommandLine::Run(const std::vector<std::string>& words) {
  // CLI11 would complain about a missing command, and not name the wrong one.
  if (!words.empty() && !words[0].empty() && words[0][0] != '-' &&
      app_->get_subcommands([&](CLI::App* command) { return command->check_name(words[0]); }).empty()) {
    service::Say(absl::StrCat("unknown command ", service::Printable(words[0]), "; see heaptap --help"));
    return kUsage;
  }
  try {
    app_->parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& help) {
    return app_->exit(help);
  } catch (const CLI::ParseError& error) {
    service::Say(absl::StrCat(error.what(), "; see heaptap --help"));
    return kUsage;
  }
  return action_ ? action_() : kSuccess;
}

}  // namespace heaptap::cli
