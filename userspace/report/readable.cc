// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/readable.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"

namespace heaptap::report {
namespace {

constexpr absl::string_view kOperator = "operator";
constexpr absl::string_view kAnonymous = "(anonymous namespace)";
constexpr absl::string_view kCut = "<...>";
constexpr absl::string_view kAs = " as ";
// The end of a Rust name in the legacy form: "::h" and 16 hexadecimal digits.
constexpr size_t kHashBytes = 19;

// Namespaces whose functions are between a program and its memory.
constexpr absl::string_view kPlumbingPrefixes[] = {
    "std::",      "__gnu_cxx::", "__cxxabiv1::", "alloc::", "core::",      "hashbrown::", "boost::container::",
    "tcmalloc::", "<alloc::",    "<core::",      "<std::",  "<hashbrown::"};
constexpr absl::string_view kAllocatorFiles[] = {"libheaptap", "libjemalloc", "libmimalloc", "libtcmalloc"};
// Between a program and its memory, or between a thread's start and its function.
constexpr absl::string_view kLibraryFiles[] = {"libstdc++.so", "libc++.so", "libc++abi.so"};
constexpr absl::string_view kPlumbing[] = {"malloc",
                                           "calloc",
                                           "realloc",
                                           "reallocarray",
                                           "free",
                                           "memalign",
                                           "posix_memalign",
                                           "aligned_alloc",
                                           "valloc",
                                           "pvalloc",
                                           "mallocx",
                                           "rallocx",
                                           "xallocx",
                                           "operator new",
                                           "operator new[]",
                                           "strdup",
                                           "strndup",
                                           "__strdup",
                                           "__strndup",
                                           "__rust_alloc",
                                           "__rust_realloc",
                                           "__rust_alloc_zeroed",
                                           "__rdl_alloc",
                                           "__rdl_realloc",
                                           "__rg_alloc",
                                           "__rg_realloc",
                                           "asprintf",
                                           "vasprintf",
                                           "__vasprintf_internal",
                                           "__asprintf"};
constexpr absl::string_view kStarts[] = {"_start",
                                         "__libc_start_main",
                                         "__libc_start_main_impl",
                                         "__libc_start_call_main",
                                         "start_thread",
                                         "clone",
                                         "clone3",
                                         "__clone3",
                                         "__clone"};

bool IsWordLetter(char c) { return absl::ascii_isalnum(c) || c == '_' || c == '$'; }

// The length of the bracketed text at the beginning of `text`; all of it if the bracket is not closed. An arrow or a
// comparison inside is part of an expression and closes nothing.
size_t BracketedBytes(absl::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    if (c == '<' || c == '(' || c == '{' || c == '[') depth++;
    if (c == '>' && i > 0 && (text[i - 1] == '-' || text[i - 1] == '=')) continue;
    if (c == '>' || c == ')' || c == '}' || c == ']') depth--;
    if (depth == 0) return i + 1;
  }
  return text.size();
}

absl::string_view WithoutHash(absl::string_view name) {
  if (name.size() <= kHashBytes) return name;
  const absl::string_view hash = name.substr(name.size() - kHashBytes);
  const bool is_hash = absl::StartsWith(hash, "::h") && std::all_of(hash.begin() + 3, hash.end(), absl::ascii_isxdigit);
  return is_hash ? name.substr(0, name.size() - kHashBytes) : name;
}

// Takes a name apart from its beginning, and puts the parts that are kept together.
class Shortener {
 public:
  explicit Shortener(absl::string_view name) : rest_(name) {}

  std::string Shorten() && {
    while (!rest_.empty() && !is_over_) TakeNext();
    return std::move(out_);
  }

 private:
  void TakeNext() {
    if (IsOperator()) return TakeOperator();
    if (absl::ConsumePrefix(&rest_, kAnonymous)) return Keep(kAnonymous);
    switch (rest_[0]) {
      case '<':
        return BeginsQualifiedType() ? TakeQualifiedType() : TakeTemplateArguments();
      case '{':
        return TakeBraces();
      case '(':
        return TakeParameters();
      case ' ':
        return TakeBlank();
      default:
        Keep(Take(1));
    }
  }

  absl::string_view Take(size_t bytes) {
    const absl::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  void Keep(absl::string_view text) { out_.append(text.data(), text.size()); }

  bool IsOperator() const {
    return absl::StartsWith(rest_, kOperator) && (out_.empty() || !IsWordLetter(out_.back())) &&
           (rest_.size() == kOperator.size() || !IsWordLetter(rest_[kOperator.size()]));
  }
  // Takes "operator<<", and with "operator new[]" and "operator int" the words too.
  void TakeOperator() {
    Keep(Take(kOperator.size()));
    size_t symbol = rest_.find_first_not_of("<>=-+*/%^&|~!,");
    if (absl::StartsWith(rest_, "()") || absl::StartsWith(rest_, "[]")) symbol = 2;
    if (absl::StartsWith(rest_, " ")) symbol = rest_.find('(');
    Keep(Take(symbol));
    is_operator_ = true;
  }

  // Rust's impl blocks have no name but their types: "<T as Trait>::f".
  bool BeginsQualifiedType() const { return out_.empty() || out_.back() == ' '; }
  void TakeQualifiedType() {
    absl::string_view inside = Take(BracketedBytes(rest_)).substr(1);
    const bool is_closed = absl::ConsumeSuffix(&inside, ">");
    const size_t as = inside.find(kAs);
    Keep("<");
    Keep(Shortener(inside.substr(0, as)).Shorten());
    if (as != absl::string_view::npos) {
      Keep(kAs);
      Keep(Shortener(inside.substr(as + kAs.size())).Shorten());
    }
    if (is_closed) Keep(">");
  }
  void TakeTemplateArguments() {
    Take(BracketedBytes(rest_));
    Keep(kCut);
  }
  // "{lambda(int)#1}" and Rust's "{{closure}}" are names; the lambda's parameters are not kept.
  void TakeBraces() {
    const absl::string_view braces = Take(BracketedBytes(rest_));
    const size_t parameters = braces.find('(');
    const size_t number = braces.rfind(")#");
    const bool has_parameters = parameters < number && number != absl::string_view::npos;
    Keep(braces.substr(0, has_parameters ? parameters : absl::string_view::npos));
    if (has_parameters) Keep(braces.substr(number + 1));
  }
  // The name ends here, unless it goes on as in "f(int) const::{lambda()#1}" or in "decltype(auto) f()".
  void TakeParameters() {
    Take(BracketedBytes(rest_));
    if (absl::EndsWith(out_, "decltype")) return;
    absl::string_view after = rest_;
    absl::ConsumePrefix(&after, " const");
    if (absl::StartsWith(after, "::")) {
      rest_ = after;
    } else {
      is_over_ = true;
    }
  }
  // The text before a blank is a return type if a function with parameters follows.
  void TakeBlank() {
    Take(1);
    if (is_operator_ && absl::StartsWith(rest_, "<")) return;  // "operator<< <char>"
    if (rest_.find('(') == absl::string_view::npos) {
      Keep(" ");
    } else {
      out_.clear();
    }
  }

  absl::string_view rest_;
  std::string out_;
  bool is_over_ = false;
  bool is_operator_ = false;  // the name belongs to an operator
};

// Whether the name is a place in one of these libraries: "libx.so.1+0x2".
bool IsUnnamedIn(absl::string_view name, absl::Span<const absl::string_view> files) {
  return absl::StrContains(name, ".so") && absl::StrContains(name, "+0x") &&
         std::ranges::any_of(files, [&](absl::string_view file) { return absl::StartsWith(name, file); });
}

}  // namespace

std::string ReadableName(absl::string_view name) {
  // Names of C functions, and files with offsets.
  if (name.find_first_of("<(:{ ") == absl::string_view::npos) return std::string(name);
  std::string shortened = Shortener(WithoutHash(name)).Shorten();
  return shortened.empty() ? std::string(name) : shortened;
}

bool IsInAllocator(absl::string_view name) { return IsUnnamedIn(name, kAllocatorFiles); }

bool IsPlumbing(absl::string_view name) {
  const auto is_inside = [](absl::string_view text) {
    return std::ranges::any_of(kPlumbingPrefixes,
                               [&](absl::string_view prefix) { return absl::StartsWith(text, prefix); });
  };
  if (is_inside(name) || IsInAllocator(name) || IsUnnamedIn(name, kLibraryFiles)) return true;
  // A template function's name begins with its return type.
  if (absl::StrContains(name, '<') && is_inside(ReadableName(name))) return true;
  const absl::string_view function = name.substr(0, name.find('('));
  return std::ranges::find(kPlumbing, function) != std::end(kPlumbing);
}

bool IsPlumbing(absl::string_view name, absl::string_view file, bool is_inline) {
  // The folders of g++ and clang++, and of Rust as it is built and as it is installed.
  const bool is_header = absl::StrContains(file, "/include/c++/");
  const bool is_rust = absl::StartsWith(file, "/rustc/") || absl::StrContains(file, "/rustlib/src/rust/library/");
  return (is_header && is_inline) || (is_rust && absl::StrContains(file, "/library/")) || IsPlumbing(name);
}

bool IsStart(absl::string_view name) {
  const absl::string_view function = name.substr(0, name.find('@'));
  return std::ranges::find(kStarts, function) != std::end(kStarts);
}

}  // namespace heaptap::report
