# SPDX-License-Identifier: Apache-2.0
"""Missing rights: exit status 4, and one line that names the capability."""

import os
import shutil

from harness import HEAPTAP, LIBRARY, target
from lab import assert_one_clear_line

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]


def public(lab):
    """Copies that all users may read, in a folder that all may write: the checkout may be accessible only to root."""
    folder = lab.path("public")
    os.mkdir(folder)
    os.chmod(folder, 0o777)
    for path in (HEAPTAP, LIBRARY):
        shutil.copy(path, folder)
    return folder


def test_run_by_nobody(lab):
    folder = public(lab)
    session = lab.heaptap("run", "--", "true", binary=f"{folder}/heaptap", before=NOBODY, cwd=folder)
    assert_one_clear_line(session, 4, "CAP_(BPF|SYS_ADMIN|PERFMON)")


def test_run_by_nobody_in_a_folder_of_root(lab):
    """The rights come first: in another folder it would not work either."""
    folder = public(lab)
    session = lab.heaptap("run", "--", "true", binary=f"{folder}/heaptap", before=NOBODY, cwd="/")
    assert_one_clear_line(session, 4, "missing rights: run heaptap run as root, or give it CAP_")


def test_no_types_of_the_kernel(lab):
    """Without BTF nothing can be recorded."""
    hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/kernel/btf && exec "$@"', "sh"]
    assert_one_clear_line(lab.heaptap("run", "--", "true", before=hide), 1,
                          "this kernel has no BTF .*, so heaptap cannot record; heaptap doctor has the details")


def test_attach_by_nobody_to_root_s_process(lab):
    folder = public(lab)
    puppet = lab.preloaded_puppet()
    session = lab.heaptap("attach", "-p", puppet.target_pid, binary=f"{folder}/heaptap", before=NOBODY, cwd=folder)
    assert_one_clear_line(session, 4, "CAP_[A-Z_]+")


def test_another_user_s_process(lab):
    """With all capabilities for eBPF, but without the right to inspect another user's process."""
    puppet = lab.preloaded_puppet()
    assert puppet.ask("uid 65534") == "uid 65534"
    session = lab.heaptap("attach", "-p", puppet.target_pid,
                          before=["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"])
    assert_one_clear_line(session, 4, "CAP_SYS_PTRACE")
    assert puppet.ask("keep 1 1") == "kept 1"


def test_bpf_forbidden(lab):
    """bpf(2) fails with EPERM for root, as in a restricted container."""
    session = lab.heaptap("run", "--", "true", before=[target("without_bpf"), "EPERM"])
    assert_one_clear_line(session, 4, "CAP_(BPF|SYS_ADMIN)|seccomp")


def test_bpf_absent(lab):
    """bpf(2) fails with ENOSYS, as in a kernel without eBPF."""
    session = lab.heaptap("run", "--", "true", before=[target("without_bpf"), "ENOSYS"])
    assert_one_clear_line(session, 1, "(?i)bpf|kernel")
