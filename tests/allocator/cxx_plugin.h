// SPDX-License-Identifier: Apache-2.0
//
// Between cxx_behaviour and its plugin.
#ifndef HEAPTAP_TESTS_ALLOCATOR_CXX_PLUGIN_H_
#define HEAPTAP_TESTS_ALLOCATOR_CXX_PLUGIN_H_

#include <cstddef>
#include <string>

class PluginObject {
 public:
  virtual ~PluginObject() = default;
  virtual std::string Text() = 0;
  // A std::runtime_error with the text.
  virtual void Throw() = 0;
  // By new[], filled with 'p'.
  virtual char* Allocate(size_t size) = 0;
};

using MakePluginObject = PluginObject* (*)(const char* text);

#endif  // HEAPTAP_TESTS_ALLOCATOR_CXX_PLUGIN_H_
