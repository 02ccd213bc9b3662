# SPDX-License-Identifier: Apache-2.0
"""Containers for tests: an overlay file system over an image with its own copy of the library and the programs, and
processes in separate mount, PID and user namespaces that see nothing else."""

import os
import shutil
import subprocess

from harness import LIBRARY, environment, target

_SYSTEM_FILES = ("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2")
_NAME_SPACES = ("unshare", "--mount", "--user", "--map-root-user", "--pid", "--fork")


class Image:
    """The lower folder of overlay file systems."""

    def __init__(self, folder):
        self.folder = folder
        os.mkdir(folder)
        for path in _SYSTEM_FILES:
            os.makedirs(folder + os.path.dirname(path), exist_ok=True)
            shutil.copy(path, folder + path)
        for path in (LIBRARY, target("puppet"), target("paced"), shutil.which("env")):
            shutil.copy(path, folder)


class Container:
    """An overlay file system over an image."""

    def __init__(self, image, folder, own_file_system=False):
        """own_file_system: the upper layer is on another file system than the image. Then stat(2) and /proc/PID/maps show
        different numbers of a file."""
        self._folder = folder
        self.root = os.path.join(folder, "merged")
        os.mkdir(folder)
        if own_file_system:
            subprocess.run(["mount", "-t", "tmpfs", "layers", folder], check=True)
        for name in ("upper", "work", "merged"):
            os.mkdir(os.path.join(folder, name))
        self._mount = ["mount", "-t", "overlay", "overlay", "-o",
                       f"lowerdir={image.folder},upperdir={folder}/upper,workdir={folder}/work", self.root]
        self.mount()

    def mount(self):
        subprocess.run(self._mount, check=True)

    def command(self, program, *arguments, conf="lg_prof_sample:0", name_spaces=_NAME_SPACES):
        return [*name_spaces, "chroot", self.root, "/env", "LD_PRELOAD=/" + os.path.basename(LIBRARY),
                f"MALLOC_CONF={conf}", f"/{program}", *map(str, arguments)]

    def unmount(self):
        """Returns None, or the error."""
        done = subprocess.run(["umount", self.root], capture_output=True, text=True, env=environment("/"), check=False)
        return None if done.returncode == 0 else done.stderr

    def remove(self):
        """Works in any state."""
        for folder in (self.root, self._folder):
            if os.path.ismount(folder):
                subprocess.run(["umount", "--lazy", folder], check=False)
