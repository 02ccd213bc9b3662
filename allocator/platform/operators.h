// SPDX-License-Identifier: Apache-2.0
//
// Who has the operators new and delete of a process. The standard lets a program replace some of them, and the other
// forms then end in these: the C++ library defines them so. A preloaded library that exports all forms would come
// between.
//
// For the start of a library. Any thread; calls no code of others.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_OPERATORS_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_OPERATORS_H_

namespace heaptap {

// Whether this is the name of an operator new or delete, in any of its forms.
bool IsOperator(const char* name);

// Whether this library's operators may take the place of those that the process would have without it. They may if
// these are of a C++ library or of an allocator. They may not
//
//   - if the program, or a library that it needs, replaces some forms
//   - if an object before this library has some of malloc's functions, in which the C++ library's operators end
//   - if they are of an allocator whose malloc is not the next one: they may call that of the other by its name
//   - if no object defines them: a C++ library that is opened later brings its own, and plugins may replace some of
//     these
bool MayTakeOperators();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_OPERATORS_H_
