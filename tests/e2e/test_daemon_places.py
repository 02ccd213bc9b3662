# SPDX-License-Identifier: Apache-2.0
"""Where the daemon puts what it keeps."""

import os

from daemon import DaemonCase

FAILURE = 1  # userspace/cli/exit_status.h


class Places(DaemonCase):
    def test_pins_in_no_bpf_file_system(self):
        """It is refused; nothing is mounted over what lies there."""
        configuration = os.path.join(self.folder, "heaptap.conf")
        with open(configuration, "w", encoding="ascii"):
            pass
        for parent in (self.folder, os.path.join(self.folder, "absent")):
            session = self.heaptap("daemon", "--config", configuration, "--pin-dir", os.path.join(parent, "pins"),
                                   "--state-dir", os.path.join(self.folder, "state"),
                                   "--socket", os.path.join(self.folder, "socket"))
            self.assert_one_clear_line(session, FAILURE, "no BPF file system", "--pin-dir|pins")
        self.assertFalse(os.path.ismount(self.folder))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "pins")))
