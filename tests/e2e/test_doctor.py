# SPDX-License-Identifier: Apache-2.0
"""heaptap doctor says what this kernel and this user allow, and what is missing, by name, with the remedy."""

import json
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

    def test_of_a_process(self):
        puppet = self.preloaded_puppet()
        result = self.doctor("-p", str(puppet.target_pid))
        self.assertIn("libheaptap.so", result.stdout)
        sleeper = self.program("sleep", "1000")
        self.assertEqual(self.doctor("-p", str(sleeper.pid)).returncode, 3)
