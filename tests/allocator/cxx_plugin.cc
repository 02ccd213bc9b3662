// SPDX-License-Identifier: Apache-2.0
#include "cxx_plugin.h"

#include <cstring>
#include <map>
#include <stdexcept>

namespace {

// Made when the plugin is loaded, and destroyed when it is closed.
std::map<int, std::string> table = [] {
  std::map<int, std::string> texts;
  for (int i = 0; i < 1000; i++) texts[i] = std::string(static_cast<size_t>(i), 't');
  return texts;
}();

class Object : public PluginObject {
 public:
  explicit Object(const char* text) : text_(text) {}
  std::string Text() override { return text_; }
  void Throw() override { throw std::runtime_error(text_); }
  char* Allocate(size_t size) override {
    char* block = new char[size];
    memset(block, 'p', size);
    return block;
  }

 private:
  std::string text_;
};

}  // namespace

extern "C" PluginObject* make_plugin_object(const char* text) { return new Object(text); }
