// SPDX-License-Identifier: Apache-2.0
//
// The command line: commands, their options, and checks of their values.
//
// A layer over CLI11 without templates. CLI11's header takes ten seconds to compile, so only command_line.cc and
// help_text.cc include it.
//
// Command and Option are handles, cheap to copy, and valid while their CommandLine lives. Variables bound to options
// must live as long; they keep their value when the option is not given. Not thread safe.
#ifndef HEAPTAP_USERSPACE_CLI_WORDS_COMMAND_LINE_H_
#define HEAPTAP_USERSPACE_CLI_WORDS_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace heaptap::cli {

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option Required();
  // The name of the value in --help; "" omits it.
  Option Type(const std::string& name);
  // The option cannot be set in a configuration file.
  Option CommandLineOnly();
  // The two options cannot be given together.
  Option Excludes(Option other);

  // Checks of the value. A check returns "", or the reason to refuse the word.
  Option Check(std::function<std::string(const std::string&)> check);
  Option AboveZero();
  Option NotNegative();
  Option Range(int least, int most);
  Option OneOf(const std::vector<std::string>& words);
  // A number of bytes; K, M and G are binary.
  Option Bytes();

  // For configuration_file.cc, after the command line has been parsed.
  std::string name() const;  // as "--name"
  bool is_flag() const;
  bool is_repeatable() const;
  bool is_given() const;
  // The value that `--name` (text "") or `--name=text` gives to a flag.
  std::string FlagValue(const std::string& text) const;
  std::vector<Option> excluded() const;
  // Sets the variable as the command line would. InvalidArgument: invalid values; the message says why.
  absl::Status Set(const std::vector<std::string>& values);

  friend bool operator==(Option a, Option b) { return a.option_ == b.option_; }

 private:
  CLI::Option* option_;
};

class Command {
 public:
  // `chosen` becomes the command's action when the command line names the command.
  Command(CLI::App* app, std::function<int()>* chosen) : app_(app), chosen_(chosen) {}

  // An option with a value. `names`: "-o,--output", or one word without dashes for a positional argument.
  Option Add(const std::string& names, std::string& value, const std::string& help);
  Option Add(const std::string& names, int& value, const std::string& help);
  Option Add(const std::string& names, uint32_t& value, const std::string& help);
  Option Add(const std::string& names, uint64_t& value, const std::string& help);
  Option Add(const std::string& names, double& value, const std::string& help);
  Option Add(const std::string& names, std::optional<uint64_t>& value, const std::string& help);
  Option Add(const std::string& names, std::optional<double>& value, const std::string& help);
  // Options that can be given several times.
  Option Add(const std::string& names, std::vector<std::string>& values, const std::string& help);
  Option Add(const std::string& names, std::vector<int>& values, const std::string& help);
  Option AddFlag(const std::string& names, bool& value, const std::string& help);
  // A flag with an optional value (--name=N); without it, `value_without`.
  Option AddFlag(const std::string& name, int value_without, int& value, const std::string& help);

  // Text below the options of --help.
  void Footer(const std::string& text);
  // The action of the command; its result is the exit status.
  void Runs(std::function<int()> action);
  // Stops parsing at the first word that is not an option; Rest() returns the remaining words.
  void EndsAtFirstWord();
  std::vector<std::string> Rest() const;
  bool IsGiven(const std::string& name) const;

  std::string name() const;
  // The option with this name (without dashes), if a configuration file may set it.
  std::optional<Option> FindConfigurable(const std::string& name) const;

 private:
  CLI::App* app_;
  std::function<int()>* chosen_;
};

class CommandLine {
 public:
  CommandLine();
  ~CommandLine();

  Command AddCommand(const std::string& name, const std::string& help);
  // Lines to show if the command line has no words at all, besides one that says so.
  void ForAStart(std::vector<std::string> lines) { for_a_start_ = std::move(lines); }
  // Sets variables without running an action. InvalidArgument: an invalid word; the message says which and why.
  absl::Status Parse(std::vector<std::string> words);
  // Parses the words after the program's own name and runs the command, or prints help or the version. Errors go to
  // stderr. Returns the exit status.
  int Run(const std::vector<std::string>& words);

 private:
  // The command that is most similar to a mistyped word; "" if there is none.
  std::string FindSimilar(const std::string& word) const;

  // Says what is wrong with the words of a command, or of heaptap itself (null), and where its help is. Returns kUsage.
  static int SayInvalid(const std::string& what, const CLI::App* command);

  std::unique_ptr<CLI::App> app_;
  std::vector<std::string> for_a_start_;
  std::function<int()> action_;
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WORDS_COMMAND_LINE_H_
