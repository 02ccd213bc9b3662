# SPDX-License-Identifier: Apache-2.0
"""The place of a process that runs tests, where it and its descendants see nothing of other tests.

- Mount and network namespaces of its own: /tmp, /run and the BPF file system are empty at first, and there is only a
  loopback device. What is pinned or left there goes with the last process.
- A control group of its own, to which its daemons are restricted. So daemons of several places run side by side.
- Copies of the libraries and of the targets, if several places belong to one checkout: a probe is in a file, and all
  processes that map the file hit it.

PIDs are those of the machine: heaptap works in the first PID namespace only.
"""

import contextlib
import ctypes
import fcntl
import glob
import os
import shutil
import socket
import stat
import struct
import subprocess
import time

_CLONE_NEWNS = 0x00020000
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1

# Where control groups of version 2 are mounted: alone, beside those of version 1, or by enter().
_UNIFIED = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
_OWN_UNIFIED = "/mnt"  # /run and /tmp are replaced

# Of control groups and folders, with the PID of their process.
_NAME = "heaptap-e2e"

# For processes that were killed.
_END_SECONDS = 60

_libc = ctypes.CDLL(None, use_errno=True)


def _unshare(flags):
    # Of this thread only: others, such as those of xdist, start no programs.
    if _libc.unshare(flags) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot make namespaces for tests: {os.strerror(error)}")


def _mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def _mount_empty(folder):
    """An empty file system with the folders of the old one, since programs expect to find theirs."""
    folders = []
    for where, names, _ in os.walk(folder):
        names[:] = [name for name in names if not os.path.ismount(os.path.join(where, name))]
        folders += [os.path.join(where, name) for name in names if not os.path.islink(os.path.join(where, name))]
    status = [(path, os.stat(path)) for path in folders]
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
    for path, was in status:
        os.mkdir(path)
        os.chown(path, was.st_uid, was.st_gid)
        os.chmod(path, stat.S_IMODE(was.st_mode))


def _bind(parent, name, path):
    """Mounts an entry of the folder `parent`, a descriptor, at a new path."""
    entry = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
    try:
        mode = os.fstat(entry).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(name, dir_fd=parent), path)
        elif stat.S_ISDIR(mode):
            os.mkdir(path)
        else:
            _write(path, "")
        if not stat.S_ISLNK(mode):
            subprocess.run(["mount", "--no-canonicalize", "--bind", f"/proc/self/fd/{entry}", path], pass_fds=[entry], check=True)
    finally:
        os.close(entry)


def _open_to_all(folder):
    """Other users can reach `folder` from now on, although it may be below the home of root. In the place of each folder that
    only its owner may enter is another one with the same entries."""
    ancestors = [folder]
    while ancestors[0] != "/":
        ancestors.insert(0, os.path.dirname(ancestors[0]))
    for ancestor in ancestors:
        if os.stat(ancestor).st_mode & stat.S_IXOTH:
            continue
        closed = os.open(ancestor, os.O_RDONLY | os.O_DIRECTORY)
        _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", ancestor)
        for name in os.listdir(closed):
            _bind(closed, name, os.path.join(ancestor, name))
        os.close(closed)
    os.chdir(os.getcwd())


def _raise_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


def _unified():
    for folder in _UNIFIED:
        if os.path.exists(os.path.join(folder, "cgroup.procs")):
            return folder
    _mount("-t", "cgroup2", "none", _OWN_UNIFIED)
    return _OWN_UNIFIED


def _write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _end_group(group):
    """Ends all processes of a control group and of those below it, and removes the groups."""
    # Another process may remove the same group.
    with contextlib.suppress(OSError):
        _write(os.path.join(group, "cgroup.kill"), "1")
    end = time.monotonic() + _END_SECONDS
    for where, _, _ in list(os.walk(group, topdown=False)):
        while os.path.exists(where):
            # The kernel may need a moment for processes that are ending.
            with contextlib.suppress(OSError):
                os.rmdir(where)
                continue
            if time.monotonic() > end:
                raise AssertionError(f"processes in {where} do not end")
            time.sleep(0.01)


def _remove_left_behind(root):
    """Removes what is left of places whose process was killed."""
    left = glob.glob(os.path.join(root, _NAME + "-*")) + glob.glob(f"/tmp/{_NAME}-*")
    for path in left:
        if os.path.exists(f"/proc/{path.rpartition('-')[2]}"):
            continue
        if path.startswith("/tmp/"):
            shutil.rmtree(path, ignore_errors=True)
        else:
            _end_group(path)


class Place:
    """`group`: the folder of its control group; `temporary`: its /tmp, as other processes see it. Both are None before
    enter(). Other users can reach `checkout` there."""

    def __init__(self, checkout):
        self._checkout = checkout
        self.group = self.temporary = self._root = None

    def enter(self):
        """Moves this process there, and so all that it will start."""
        _unshare(_CLONE_NEWNS | _CLONE_NEWNET)
        _mount("--make-rprivate", "/")
        _open_to_all(self._checkout)
        self._root = _unified()
        _remove_left_behind(self._root)
        self.temporary = f"/tmp/{_NAME}-{os.getpid()}"
        os.mkdir(self.temporary)
        os.chmod(self.temporary, 0o1777)
        _mount("--bind", self.temporary, "/tmp")
        _mount_empty("/run")
        _mount("-t", "bpf", "bpf", "/sys/fs/bpf")
        _raise_loopback()
        self.group = os.path.join(self._root, f"{_NAME}-{os.getpid()}")
        # Processes of version 2 are in leaves only, and tests make groups beside this one.
        os.makedirs(os.path.join(self.group, "main"))
        _write(os.path.join(self.group, "main", "cgroup.procs"), "0")

    def leave(self, keep):
        """Ends all descendants and removes the control group; also `temporary`, unless `keep`."""
        _write(os.path.join(self._root, "cgroup.procs"), "0")
        _end_group(self.group)
        if not keep:
            subprocess.run(["umount", "--lazy", "/tmp"], check=True)
            shutil.rmtree(self.temporary, ignore_errors=True)
