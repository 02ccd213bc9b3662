// SPDX-License-Identifier: Apache-2.0
//
// The command line: commands, their options, and what a word must look like to be accepted.
//
// A layer over CLI11 without templates. CLI11's header takes ten seconds to compile in every file that includes it, so
// only command_line.cc does.
//
// Command and Option are handles, cheap to copy; they are valid while their CommandLine lives. Variables that options
// are bound to must live as long, and keep their value when the option is not given. Not thread safe.
#ifndef HEAPTAP_USERSPACE_CLI_COMMAND_LINE_H_
#define HEAPTAP_USERSPACE_CLI_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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
  // How --help calls the value; "" leaves it out.
  Option Type(const std::string& name);
  // Cannot be set in a configuration file.
  Option CommandLineOnly();
  // Cannot be given together with the other one.
  Option Excludes(Option other);

  // What is accepted. A check returns "", or why the word is refused.
  Option Check(std::function<std::string(const std::string&)> check);
  Option AboveZero();
  Option NotNegative();
  Option Range(int least, int most);
  Option OneOf(const std::vector<std::string>& words);
  // A number of bytes; K, M and G are binary.
  Option Bytes();

  // For configuration_file.cc, once the command line has been parsed.
  std::string name() const;  // as "--name"
  bool is_flag() const;
  bool is_repeatable() const;
  bool is_given() const;
  // What a flag is set to by `--name` (text ""), or by `--name=text`.
  std::string FlagValue(const std::string& text) const;
  std::vector<Option> excluded() const;
  // Sets the variable as the command line would. InvalidArgument: the values are refused; the message says why.
  absl::Status Set(const std::vector<std::string>& values);

  friend bool operator==(Option a, Option b) { return a.option_ == b.option_; }

 private:
  CLI::Option* option_;
};

class Command {
 public:
  // `chosen` becomes the command's action when the command line names the command.
  Command(CLI::App* app, std::function<int()>* chosen) : app_(app), chosen_(chosen) {}

  // An option with a value. `names`: "-o,--output", or one word without dashes for an argument that has no name.
  Option Add(const std::string& names, std::string& value, const std::string& help);
  Option Add(const std::string& names, int& value, const std::string& help);
  Option Add(const std::string& names, uint32_t& value, const std::string& help);
  Option Add(const std::string& names, uint64_t& value, const std::string& help);
  Option Add(const std::string& names, double& value, const std::string& help);
  Option Add(const std::string& names, std::optional<uint64_t>& value, const std::string& help);
  Option Add(const std::string& names, std::optional<double>& value, const std::string& help);
  // Those that can be given several times.
  Option Add(const std::string& names, std::vector<std::string>& values, const std::string& help);
  Option Add(const std::string& names, std::vector<int>& values, const std::string& help);
  Option AddFlag(const std::string& names, bool& value, const std::string& help);
  // A flag that may have a value (--name=N), and has `value_without` if it is given without one.
  Option AddFlag(const std::string& name, int value_without, int& value, const std::string& help);

  // Text below the options of --help.
  void Footer(const std::string& text);
  // What the command does; its result is the exit status.
  void Runs(std::function<int()> action);
  // Words from the first one that is no option are not parsed: Rest() has them.
  void EndsAtFirstWord();
  std::vector<std::string> Rest() const;
  bool IsGiven(const std::string& name) const;

  std::string name() const;
  // The option that a configuration file may set by this name, without dashes.
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
  // Sets variables, runs no action. InvalidArgument: words that are refused; the message says which and why.
  absl::Status Parse(std::vector<std::string> words);
  // Parses the words after the program's own name and runs the command that they name, or prints help or the version. A
  // message goes to stderr. Returns the exit status.
  int Run(const std::vector<std::string>& words);

 private:
  // The command that a mistyped word is like; "" if there is none.
  std::string FindSimilar(const std::string& word) const;

  std::unique_ptr<CLI::App> app_;
  std::function<int()> action_;
};

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_COMMAND_LINE_H_
