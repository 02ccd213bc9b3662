# SPDX-License-Identifier: Apache-2.0
"""Programs in Go."""

import os
import subprocess

# What Go has compiled of its own library stays with the user: it takes a minute.
_CACHE = os.path.join(os.path.expanduser("~"), ".cache", "go-build")


def built(folder, source, *arguments, with_c=False):
    """The program of a source text, in the folder. `arguments`: of go build."""
    path = os.path.join(folder, "main.go")
    with open(path, "w", encoding="ascii") as file:
        file.write(source)
    program = os.path.join(folder, "go-program")
    env = {"PATH": os.environ["PATH"], "HOME": folder, "GOCACHE": _CACHE, "GO111MODULE": "off", 
           "CGO_ENABLED": "1" if with_c else "0"}
    subprocess.run(["go", "build", *arguments, "-o", program, path], cwd=folder, env=env, check=True)
    return program
