# SPDX-License-Identifier: Apache-2.0
"""Programs stripped as Fedora does: function symbols only in .gnu_debugdata, compressed by xz."""

import os
import subprocess


def _output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def _names(*command):
    """The names in the output of nm --format=posix, with their types."""
    return {name: kind for name, kind, *_ in (line.split() for line in _output(*command).splitlines())}


def strip_as_fedora(program):
    """Strips `program` in place, and gives it mini debug information, as find-debuginfo.sh of Fedora does."""
    debug, keep = f"{program}.mini", f"{program}.keep"
    exported = _names("nm", "-D", "--format=posix", "--defined-only", program)
    symbols = _names("nm", "--format=posix", "--defined-only", program)
    with open(keep, "w", encoding="ascii") as file:
        file.writelines(f"{name}\n" for name, kind in symbols.items() if kind in "TtD" and name not in exported)
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    subprocess.run(["objcopy", "-S", "--remove-section", ".comment", f"--keep-symbols={keep}", debug], check=True)
    subprocess.run(["xz", "--force", debug], check=True)
    subprocess.run(["strip", program], check=True)
    subprocess.run(["objcopy", "--add-section", f".gnu_debugdata={debug}.xz", program], check=True)
    os.remove(keep)
