# SPDX-License-Identifier: Apache-2.0
"""heaptap doctor says what this kernel and this user allow, and what is missing, by name, with the remedy."""

import ctypes
import errno
import json
import re
import struct
import subprocess

from harness import HEAPTAP, Case, target

OPENAT2 = 437  # x86-64
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


def forbid_openat2():
    """For the process that calls it, and all that it runs: openat2 fails as on a kernel that has none."""
    load_number, jump_if_equal, answer = 0x20, 0x15, 0x06
    allow, refuse = 0x7fff0000, 0x00050000 | errno.ENOSYS
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in (
        (load_number, 0, 0, 0), (jump_if_equal, 0, 1, OPENAT2), (answer, 0, 0, refuse), (answer, 0, 0, allow)))
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program) == 0


class Doctor(Case):
    needs_bpf = False

    def doctor(self, *arguments, before=(), **options):
        return subprocess.run([*before, HEAPTAP, "doctor", *arguments], stdout=subprocess.PIPE, text=True, check=False,
                              stderr=subprocess.STDOUT, timeout=60, **options)

    def features(self, **options):
        """The kernel's features by name, and the whole result."""
        result = self.doctor("--json", **options)
        features = json.loads(result.stdout)["kernel_features"]
        by_name = {feature["name"]: feature for feature in features}
        self.assertEqual(len(by_name), len(features))
        return by_name, result

    def test_text_and_json_agree(self):
        text, data = self.doctor(), self.doctor("--json")
        self.assertEqual(text.returncode, data.returncode)
        report = json.loads(data.stdout)
        self.assertEqual(report["ok"], data.returncode == 0)
        self.assertEqual([(finding["ok"], finding["subject"]) for finding in report["findings"]],
                         [(line.startswith("ok "), line.split(maxsplit=1)[1][:len(finding["subject"])])
                          for line, finding in zip(text.stdout.splitlines(), report["findings"])])

    def test_without_bpf(self):
        for error in ("ENOSYS", "EPERM"):
            with self.subTest(error=error):
                result = self.doctor(before=(target("without_bpf"), error))
                self.assertNotEqual(result.returncode, 0)
                self.assertRegex(result.stdout, r"(?i)bpf")

    def test_features_in_text_and_json(self):
        """The same lines in both: a word for the state, the name, the kernel that brought it, and what is lost."""
        features, _ = self.features()
        text = self.doctor().stdout
        for name in ("bpf(2)", "kernel types (BTF)", "mm_struct.mm_lock_seq", "uprobes with semaphores", "ring buffer",
                     "hash maps that grow", "bpf_find_vma", "raw_tp sched_process_exit", "pidfd_getfd"):
            self.assertIn(name, features)
        for name, feature in features.items():
            with self.subTest(feature=name):
                self.assertRegex(feature["since"], r"^\d+\.\d+$")
                state = "ok" if feature["ok"] else "missing" if feature["required"] else "degraded"
                optional = "" if feature["required"] else ", optional"
                why = "" if feature["ok"] else f"; {feature['missing']}"
                line = (rf"^{state} +{re.escape(name)} +since {re.escape(feature['since'] + optional + why)}; "
                        rf"without it {re.escape(feature['lost'])}$")
                self.assertRegex(text, re.compile(line, re.MULTILINE))

    def test_features_without_bpf(self):
        """What needs eBPF is not tried, and what is lost without it is said; the rest is tried all the same."""
        for error, status in (("ENOSYS", 1), ("EPERM", 4)):
            with self.subTest(error=error):
                before = (target("without_bpf"), error)
                features, result = self.features(before=before)
                self.assertEqual(result.returncode, status)
                self.assertFalse(json.loads(result.stdout)["ok"])
                bpf, ring = features["bpf(2)"], features["ring buffer"]
                self.assertEqual((bpf["ok"], bpf["tried"], bpf["required"]), (False, True, True))
                self.assertEqual((ring["ok"], ring["tried"]), (False, False))
                self.assertTrue(features["pidfd_open"]["ok"])
                text = self.doctor(before=before).stdout
                self.assertRegex(text, r"(?m)^missing +bpf\(2\) +since 3\.18; .*; "
                                       r"without it no eBPF program can be loaded$")
                self.assertRegex(text, r"(?m)^untried +ring buffer +since 5\.8; .*; "
                                       r"without it the collector hears of no event$")

    def test_without_an_optional_feature(self):
        """It is named, with what is lost, and is no failure where all else is well."""
        _, whole = self.features()
        features, result = self.features(preexec_fn=forbid_openat2)
        self.assertEqual(result.returncode, whole.returncode)
        self.assertEqual(json.loads(result.stdout)["ok"], whole.returncode == 0)
        feature = features["openat2"]
        self.assertEqual((feature["ok"], feature["tried"], feature["required"]), (False, True, False))
        text = self.doctor(preexec_fn=forbid_openat2).stdout
        self.assertRegex(text, r"(?m)^degraded +openat2 +since 5\.6, optional; openat2: Function not implemented; "
                               r"without it separate debug files are not read$")

    def test_tables_of_a_process(self):
        """Each module with the rows of its unwind table and the kernel memory that it takes."""
        puppet = self.preloaded_puppet()
        text = self.doctor("-p", str(puppet.target_pid)).stdout
        for module in ("puppet", "libc.so.6", "libheaptap.so", "ld-linux-x86-64.so.2"):
            match = re.search(rf"^ok +unwind table +\S*{re.escape(module)}: (\d+) rows, (\d+) KiB$", text, re.MULTILINE)
            self.assertIsNotNone(match, text)
            rows, size = int(match.group(1)), int(match.group(2))
            self.assertGreater(rows, 5)
            # 8 bytes each, in pages of 504, and the pages that lead to them.
            self.assertGreaterEqual(size, rows * 8 / 1024)
            self.assertLessEqual(size, 8 + rows * 8 / 1024 * 1.1)

    def test_of_a_process(self):
        puppet = self.preloaded_puppet()
        result = self.doctor("-p", str(puppet.target_pid))
        self.assertIn("libheaptap.so", result.stdout)
        sleeper = self.program("sleep", "1000")
        self.assertEqual(self.doctor("-p", str(sleeper.pid)).returncode, 3)


class KernelFeatures(Case):
    def test_this_kernel_has_what_is_required(self):
        report = json.loads(subprocess.run([HEAPTAP, "doctor", "--json"], stdout=subprocess.PIPE, check=True,
                                           timeout=60).stdout)
        self.assertTrue(report["ok"])
        required = [feature for feature in report["kernel_features"] if feature["required"]]
        self.assertGreater(len(required), 20)
        self.assertEqual([feature for feature in required if not (feature["ok"] and feature["tried"])], [])
