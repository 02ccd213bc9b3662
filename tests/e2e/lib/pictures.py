# SPDX-License-Identifier: Apache-2.0
"""Where tests leave pictures for people to look at."""

import os
import tempfile

from harness import BUILD


def path_of(name):
    """In build/screenshots/; in a guest, whose build folder is read-only, a file that nobody looks at."""
    folder = os.path.join(BUILD, "screenshots")
    try:
        os.makedirs(folder, exist_ok=True)
        if os.access(folder, os.W_OK):
            return os.path.join(folder, name)
    except OSError:
        pass
    return os.path.join(tempfile.mkdtemp(prefix="heaptap-pictures."), name)
