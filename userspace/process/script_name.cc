// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/script_name.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/strip.h"

namespace heaptap::process {
namespace {

constexpr size_t kMaxNameBytes = 247;
// The kernel keeps this many bytes of a command (TASK_COMM_LEN without the terminating zero).
constexpr size_t kCommandBytes = 15;

// How an interpreter reads its command line, from its manual page. Options are words that begin with "-".
// One-letter options may share a word, as in "-uc".
struct Interpreter {
  absl::string_view name;            // of its executable file, without a version
  absl::string_view command = "";    // the name that it gives itself, if any
  bool has_clusters = true;          // one-letter options can share a word, and so can an option and its argument
  absl::string_view arguments = "";  // letters of options with an argument
  absl::string_view programs = "";   // letters of options whose argument is the program
  absl::string_view texts = "";      // letters of options whose argument is the text of the program
  // The same as whole words, for options with more letters.
  std::initializer_list<absl::string_view> argument_words = {};
  std::initializer_list<absl::string_view> program_words = {};
  std::initializer_list<absl::string_view> text_words = {};
};

const Interpreter kInterpreters[] = {
    {.name = "python", .arguments = "WX", .programs = "m", .texts = "c", .argument_words = {"--check-hash-based-pycs"}},
    {.name = "pypy", .arguments = "WX", .programs = "m", .texts = "c"},
    {.name = "node",
     .command = "MainThread",
     .has_clusters = false,
     .argument_words = {"-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions",
                        "--env-file", "--icu-data-dir", "--openssl-config", "--title"},
     .text_words = {"-e", "--eval", "-p", "--print", "-pe"}},
    {.name = "java",
     .has_clusters = false,
     .argument_words = {"-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path",
                        "--add-modules", "--add-exports", "--add-opens", "--add-reads", "--patch-module",
                        "--enable-native-access", "--source"},
     .program_words = {"-jar", "-m", "--module"}},
    {.name = "ruby", .arguments = "CEIr", .texts = "e"},
    {.name = "perl", .arguments = "I", .texts = "eE"},
    {.name = "php",
     .arguments = "cdgtz",
     .programs = "fF",
     .texts = "rRBE",
     .argument_words = {"--define", "--php-ini"}},
    {.name = "lua", .arguments = "l", .texts = "e"},
    {.name = "luajit", .arguments = "jlO", .texts = "e"},
    {.name = "sh", .arguments = "o", .texts = "c"},
    {.name = "dash", .arguments = "o", .texts = "c"},
    {.name = "bash", .arguments = "oO", .texts = "c", .argument_words = {"--init-file", "--rcfile"}},
    {.name = "zsh", .arguments = "o", .texts = "c"},
    {.name = "ksh", .arguments = "o", .texts = "c"},
};

absl::string_view LastPart(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

// The command that the kernel makes from the name of a file.
absl::string_view Command(absl::string_view name) { return name.substr(0, kCommandBytes); }

// "python3.11" and "nodejs" are "python" and "node".
const Interpreter* Find(absl::string_view executable) {
  absl::string_view name = LastPart(executable);
  absl::ConsumeSuffix(&name, " (deleted)");
  while (!name.empty() && absl::string_view("0123456789.-").find(name.back()) != absl::string_view::npos) {
    name.remove_suffix(1);
  }
  absl::ConsumeSuffix(&name, "js");
  const auto found = std::ranges::find(kInterpreters, name, &Interpreter::name);
  return found == std::end(kInterpreters) ? nullptr : found;
}

enum class Meaning { kAlone, kArgument, kProgram, kText };

struct Option {
  Meaning meaning = Meaning::kAlone;
  absl::string_view rest = "";  // an argument in the same word; "": in the next one
};

// Shells have options that begin with "+".
bool IsOption(const Interpreter& interpreter, absl::string_view word) {
  return word.size() > 1 && (word[0] == '-' || (word[0] == '+' && interpreter.has_clusters));
}

Option Read(const Interpreter& interpreter, absl::string_view word) {
  const auto is_one_of = [word](const std::initializer_list<absl::string_view>& words) {
    return std::ranges::find(words, word) != words.end();
  };
  if (is_one_of(interpreter.text_words)) return {.meaning = Meaning::kText};
  if (is_one_of(interpreter.program_words)) return {.meaning = Meaning::kProgram};
  if (is_one_of(interpreter.argument_words)) return {.meaning = Meaning::kArgument};
  if (word[1] == '-' || !interpreter.has_clusters) return {};
  for (size_t i = 1; i < word.size(); i++) {
    const auto is_in = [letter = word[i]](absl::string_view letters) {
      return letters.find(letter) != absl::string_view::npos;
    };
    if (is_in(interpreter.texts)) return {.meaning = Meaning::kText};
    if (is_in(interpreter.programs)) return {.meaning = Meaning::kProgram, .rest = word.substr(i + 1)};
    if (is_in(interpreter.arguments)) return {.meaning = Meaning::kArgument, .rest = word.substr(i + 1)};
  }
  return {};
}

// What the command line tells the interpreter to run.
absl::string_view ProgramIn(const Interpreter& interpreter, const std::vector<std::string>& arguments) {
  const auto at = [&](size_t i) { return i < arguments.size() ? absl::string_view(arguments[i]) : ""; };
  for (size_t i = 1; i < arguments.size(); i++) {
    const absl::string_view word = arguments[i];
    if (word == "-") return "";  // the program comes from standard input
    if (word == "--") return at(i + 1);
    if (!IsOption(interpreter, word)) return word;
    const Option option = Read(interpreter, word);
    if (option.meaning == Meaning::kText) return "";
    if (option.meaning == Meaning::kAlone) continue;
    const absl::string_view argument = option.rest.empty() ? at(++i) : option.rest;
    if (option.meaning == Meaning::kProgram) return argument;
  }
  return "";
}

// For example, "python3" is a link to "python3.11", and "sh" is a link to "dash".
bool IsNameOf(const Interpreter& interpreter, absl::string_view executable, absl::string_view command) {
  return command == Command(LastPart(executable)) || command == "sh" || Find(command) == &interpreter ||
         (!command.empty() && command == interpreter.command);
}

}  // namespace

bool IsInterpreter(absl::string_view executable) { return Find(executable) != nullptr; }

std::string ScriptName(absl::string_view executable, absl::string_view command,
                       const std::vector<std::string>& arguments) {
  const Interpreter* interpreter = Find(executable);
  if (interpreter == nullptr) return "";
  const absl::string_view name = LastPart(ProgramIn(*interpreter, arguments)).substr(0, kMaxNameBytes);
  if (!IsNameOf(*interpreter, executable, command) && command != Command(name)) return "";
  return std::string(name);
}

}  // namespace heaptap::process
