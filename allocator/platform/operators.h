// SPDX-License-Identifier: Apache-2.0
//
// Which object defines the operators new and delete of a process. The standard lets a program replace some of them, and
// the other forms, as the C++ library defines them, then call these. A preloaded library that exports all forms would
// come between.
//
// For the start of a library. Any thread; calls no code of others.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_OPERATORS_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_OPERATORS_H_

namespace heaptap {

// Whether this is the name of an operator new or delete, in any of its forms.
bool IsOperator(const char* name);

// Whether this library's operators may take the place of those that the process would have without it. They may if a
// C++ library or an allocator defines those. They may not
//
//   - if the program, or a library that it needs, replaces some forms
//   - if an object before this library has some of malloc's functions, in which the C++ library's operators end
//   - if an allocator defines them whose malloc is not the next one: they may call the other malloc by its name
//   - if no object defines them: a C++ library that is opened later brings its own, and plugins may replace some of
//     these
bool MayTakeOperators();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_OPERATORS_H_
