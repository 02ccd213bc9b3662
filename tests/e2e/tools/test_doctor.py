# SPDX-License-Identifier: Apache-2.0
"""heaptap doctor shows what this kernel and this user allow, and names what is missing, with the remedy."""

import ctypes
import errno
import json
import os
import re
import struct
import subprocess

import pytest

from harness import HEAPTAP, LIBRARY, PATIENCE_SECONDS, target

OPENAT2 = 437  # x86-64
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


def forbid_openat2():
    """Makes openat2 fail in this process and its children, as on a kernel without it."""
    load_number, jump_if_equal, answer = 0x20, 0x15, 0x06
    allow, refuse = 0x7fff0000, 0x00050000 | errno.ENOSYS
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in (
        (load_number, 0, 0, 0), (jump_if_equal, 0, 1, OPENAT2), (answer, 0, 0, refuse), (answer, 0, 0, allow)))
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program) == 0


def doctor(*arguments, before=(), **options):
    return subprocess.run([*before, HEAPTAP, "doctor", *arguments], stdout=subprocess.PIPE, text=True, check=False,
                          stderr=subprocess.STDOUT, timeout=PATIENCE_SECONDS, **options)


def kernel_features(**options):
    """The kernel's features by name, and the complete result."""
    result = doctor("--json", **options)
    features = json.loads(result.stdout)["kernel_features"]
    by_name = {feature["name"]: feature for feature in features}
    assert len(by_name) == len(features)
    return by_name, result


# The checks before the kernel's features, in this order.
SUBJECTS = ["kernel", "capabilities", "kernel lockdown", "PID namespace", "eBPF programs", "libheaptap.so", "probes"]


def findings(*arguments, **options):
    """[(subject, ok, detail)], which must be the same in text and JSON, and the status."""
    text, data = doctor(*arguments, **options), doctor(*arguments, "--json", **options)
    assert text.returncode == data.returncode
    report = json.loads(data.stdout)
    found = [(finding["subject"], finding["ok"], finding.get("detail", "")) for finding in report["findings"]]
    for (subject, is_there, detail), line in zip(found, text.stdout.splitlines()):
        assert re.fullmatch(rf"{'ok' if is_there else 'missing'} +{re.escape(subject)} +{re.escape(detail)}.*", line), line
    assert report["ok"] == (data.returncode == 0)
    return found, data.returncode


def test_of_the_machine():
    found, status = findings()
    assert status == 0
    assert [subject for subject, _, _ in found] == SUBJECTS
    assert all(is_there for _, is_there, _ in found)
    details = {subject: detail for subject, _, detail in found}
    assert details["kernel"].startswith(os.uname().release)
    assert "CAP_BPF" in details["capabilities"]
    assert details["libheaptap.so"] == LIBRARY


def test_the_last_line_is_the_verdict():
    assert doctor().stdout.splitlines()[-1] == "everything that heaptap needs is there"
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        try:
            (*_, last) = doctor("-p", str(sleeper.pid)).stdout.splitlines()
        finally:
            sleeper.kill()
    assert last == "heaptap cannot record this process; missing: sampled allocator"


def test_in_another_pid_namespace():
    """Each sentence is there once."""
    result = doctor(before=["unshare", "--pid", "--fork"])
    assert result.returncode == 1
    (line,) = [line for line in result.stdout.splitlines() if "separate PID namespace" in line]
    assert re.fullmatch("missing +PID namespace +heaptap runs in a separate PID namespace, where PIDs differ from the kernel's; "
                        "run it on the host, or in a container with --pid=host", line)
    last = result.stdout.splitlines()[-1]
    assert last.startswith("heaptap cannot record here; missing: PID namespace, eBPF programs"), last


@pytest.mark.without_bpf
def test_features_in_text_and_json():
    """Both have the same lines: a word for the state, the name, the first kernel with it, and what is lost."""
    features, _ = kernel_features()
    text = doctor().stdout
    for name in ("bpf(2)", "kernel types (BTF)", "mm_struct.mm_lock_seq", "uprobes with semaphores", "ring buffer",
                 "hash maps that grow", "bpf_find_vma", "raw_tp sched_process_exit", "memory of other processes",
                 "pidfd_getfd"):
        assert name in features
    for name, feature in features.items():
        assert re.fullmatch(r"\d+\.\d+", feature["since"]), feature
        state = "ok" if feature["ok"] else "missing" if feature["required"] else "degraded"
        optional = "" if feature["required"] else ", optional"
        why = "" if feature["ok"] else f"; {feature['missing']}"
        line = (rf"^{state} +{re.escape(name)} +since {re.escape(feature['since'] + optional + why)}; "
                rf"without it {re.escape(feature['lost'])}$")
        assert re.search(line, text, re.MULTILINE), (line, text)


def test_this_kernel_has_what_is_required():
    features, result = kernel_features()
    assert result.returncode == 0
    assert json.loads(result.stdout)["ok"]
    required = [feature for feature in features.values() if feature["required"]]
    assert len(required) > 20
    assert [feature for feature in required if not (feature["ok"] and feature["tried"])] == []


@pytest.mark.without_bpf
@pytest.mark.parametrize("error, status", (("ENOSYS", 1), ("EPERM", 4)))
def test_without_bpf(error, status):
    """Features that need eBPF are not tried, and their loss is shown; the others are tried."""
    before = (target("without_bpf"), error)
    features, result = kernel_features(before=before)
    assert result.returncode == status
    assert not json.loads(result.stdout)["ok"]
    bpf, ring = features["bpf(2)"], features["ring buffer"]
    assert (bpf["ok"], bpf["tried"], bpf["required"]) == (False, True, True)
    assert (ring["ok"], ring["tried"]) == (False, False)
    assert features["pidfd_open"]["ok"]
    text = doctor(before=before).stdout
    assert re.search(r"(?m)^missing +bpf\(2\) +since 3\.18; .*; without it no eBPF program can be loaded$", text)
    assert re.search(r"(?m)^untried +ring buffer +since 5\.8; .*; without it the collector receives no events$", text)


@pytest.mark.without_bpf
def test_without_an_optional_feature():
    """The feature is named with its loss, and is not a failure if everything else is fine."""
    _, whole = kernel_features()
    features, result = kernel_features(preexec_fn=forbid_openat2)
    assert result.returncode == whole.returncode
    assert json.loads(result.stdout)["ok"] == (whole.returncode == 0)
    feature = features["openat2"]
    assert (feature["ok"], feature["tried"], feature["required"]) == (False, True, False)
    text = doctor(preexec_fn=forbid_openat2).stdout
    assert re.search(r"(?m)^degraded +openat2 +since 5\.6, optional; openat2: Function not implemented; "
                     r"without it separate debug files are not read$", text)


@pytest.mark.without_bpf
def test_tables_of_a_process(lab):
    """Each module is listed with the rows of its unwind table and the kernel memory for it."""
    puppet = lab.preloaded_puppet()
    text = doctor("-p", str(puppet.target_pid)).stdout
    for module in ("puppet", "libc.so.6", "libheaptap.so", "ld-linux-x86-64.so.2"):
        match = re.search(rf"^ok +unwind table +\S*{re.escape(module)}: (\d+) rows, (\d+) KiB$", text, re.MULTILINE)
        assert match is not None, text
        rows, size = int(match.group(1)), int(match.group(2))
        assert rows > 5
        # 8 bytes each, in pages of 504, plus the pages of the upper levels.
        assert size >= rows * 8 / 1024
        assert size <= 8 + rows * 8 / 1024 * 1.1


def test_of_a_process(lab):
    """A process that can be recorded, and one without the library."""
    puppet = lab.preloaded_puppet(env={"MALLOC_CONF": "lg_prof_sample:12", "HEAPTAP_CONF": "prof_seed:1"})
    result = doctor("-p", str(puppet.target_pid))
    assert result.returncode == 0, result.stdout
    allocator = rf"(?m)^ok +sampled allocator +{re.escape(LIBRARY)}, lg_prof_sample 12, prof\.active true$"
    assert re.search(allocator, result.stdout), result.stdout
    sleeper = lab.program("sleep", "1000")
    result = doctor("-p", str(sleeper.pid))
    assert result.returncode == 3, result.stdout
    assert re.search("(?m)^missing +sampled allocator +none is mapped", result.stdout), result.stdout
