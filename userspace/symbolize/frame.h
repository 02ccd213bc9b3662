// SPDX-License-Identifier: Apache-2.0
//
// The meaning of a code address in the source of its program.
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_FRAME_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"

namespace heaptap::symbolize {

// An immutable text that many frames share: a function's name is in thousands of stacks, and with a hostile file,
// copies of a long name would fill the memory. It may have any bytes. Thread-compatible; copies may go to other
// threads.
class Name {
 public:
  // The empty name: unknown.
  Name() = default;
  explicit Name(absl::string_view text) : text_(text.empty() ? nullptr : std::make_shared<const std::string>(text)) {}

  bool empty() const { return text_ == nullptr; }
  // Valid as long as a copy of this name exists.
  absl::string_view view() const { return text_ == nullptr ? absl::string_view() : absl::string_view(*text_); }

  friend bool operator==(const Name& a, const Name& b) { return a.view() == b.view(); }

 private:
  std::shared_ptr<const std::string> text_;
};

// A set of names. Thread-compatible.
class Names {
 public:
  Name Get(absl::string_view text) {
    if (text.empty()) return Name();
    auto found = names_.find(text);
    if (found != names_.end()) return *found;
    bytes_ += sizeof(Name) + kStringBytes + text.size();
    return *names_.insert(Name(text)).first;
  }

  // Approximate bytes of memory.
  size_t bytes() const { return bytes_; }

 private:
  // The control block of a shared string and the allocation of its text.
  static constexpr size_t kStringBytes = 80;
  struct Hash {
    using is_transparent = void;
    size_t operator()(absl::string_view text) const { return absl::Hash<absl::string_view>()(text); }
    size_t operator()(const Name& name) const { return (*this)(name.view()); }
  };
  struct Equal {
    using is_transparent = void;
    static absl::string_view View(absl::string_view text) { return text; }
    static absl::string_view View(const Name& name) { return name.view(); }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return View(a) == View(b);
    }
  };

  absl::flat_hash_set<Name, Hash, Equal> names_;
  size_t bytes_ = 0;
};

// A function that is executed at an address.
struct Frame {
  Name function = {};      // demangled if possible
  Name file = {};          // as the compiler wrote it, mostly absolute
  uint32_t line = 0;       // 0: unknown
  bool is_inline = false;  // its code is part of the next frame's function

  friend bool operator==(const Frame&, const Frame&) = default;
};

// The frames of one address, innermost first; the last one is not inline. Empty: unknown.
using Frames = std::vector<Frame>;

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_FRAME_H_
