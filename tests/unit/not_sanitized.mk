# SPDX-License-Identifier: Apache-2.0
#
# Unit tests that cannot run with a sanitizer, each with its reason. A name that no test has is an error. Included by
# tests/sanitized.mk.

# UnwindStep: compares with backtrace(3), which AddressSanitizer replaces by one that has a frame more.
# FeatureProbes.Maps: asks for a type of map that no enumerator stands for, which the kernel has to refuse.
NOT_WITH_ASAN := UnwindStep.*:FeatureProbes.Maps

NOT_WITH_TSAN :=
