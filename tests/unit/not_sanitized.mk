# SPDX-License-Identifier: Apache-2.0
#
# Unit tests that run without a sanitizer, each with its reason. A name that no test has is an error. Included by
# tests/sanitized.mk.

# UnwindStep: compares with backtrace(3), which AddressSanitizer replaces by one that has a frame more.
# FeatureProbes.Maps: asks for a type of map that no enumerator stands for, which the kernel has to refuse.
NOT_WITH_ASAN := UnwindStep.*:FeatureProbes.Maps
# The others repeat the same calls with up to hundreds of thousands of inputs, and would take half of the time. Smaller tests and
# the fuzzers run that code with sanitizers.
NOT_WITH_ASAN := $(NOT_WITH_ASAN):SymbolizerTest.Agrees*:FileTable.AgreesWithTheTableAtEveryAddress:Rows/TreeTest.SearchFindsWhatTheTableSays/1*
NOT_WITH_ASAN := $(NOT_WITH_ASAN):FinishStack.SaysWhatTheKernelSays:*.OfLargeProfiles:HeapV2Reader.LargeDumps

NOT_WITH_TSAN :=
