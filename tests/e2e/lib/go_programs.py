# SPDX-License-Identifier: Apache-2.0
"""Programs in Go."""

import os
import subprocess

# What Go has compiled of its own library stays with the user: it takes a minute.
_CACHE = os.path.join(os.path.expanduser("~"), ".cache", "go-build")


def built(folder, source):
    """The program of a source text, in the folder."""
    path = os.path.join(folder, "main.go")
    with open(path, "w", encoding="ascii") as file:
        file.write(source)
    program = os.path.join(folder, "go-program")
    env = {"PATH": os.environ["PATH"], "HOME": folder, "GOCACHE": _CACHE, "GO111MODULE": "off", "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", "-o", program, path], cwd=folder, env=env, check=True)
    return program
