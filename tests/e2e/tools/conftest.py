# SPDX-License-Identifier: Apache-2.0
"""What the tests of heaptap's commands share."""

from recordings import leak, recordings  # noqa: F401
