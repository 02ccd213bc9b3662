# SPDX-License-Identifier: Apache-2.0
"""heaptap doctor says what this kernel and this user allow, and what is missing, by name, with the remedy."""

import json
import re
import subprocess

from harness import HEAPTAP, Case, target


class Doctor(Case):
    needs_bpf = False

    def doctor(self, *arguments, before=()):
        return subprocess.run([*before, HEAPTAP, "doctor", *arguments], stdout=subprocess.PIPE, text=True, check=False,
                              stderr=subprocess.STDOUT, timeout=60)

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
