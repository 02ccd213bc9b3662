# SPDX-License-Identifier: Apache-2.0
"""Bad input in MALLOC_CONF: a line that says what, as jemalloc says it, and the program goes on. No error bounds."""

import signal
import subprocess

from harness import LIBRARY, Case, target
from walkthrough import JEMALLOC, KI, SAYS, said

OPTION_BYTES = 64 * KI


class Options(Case):
    """MALLOC_CONF. The program prints the number of its call paths, 8, and ends with status 0."""

    needs_bpf = False

    def run_with(self, library, conf):
        process = self.program(target("contexts"), "3", env={"LD_PRELOAD": library, "MALLOC_CONF": conf})
        return process.wait(), process.stdout(), said(process)

    def assert_goes_on(self, conf):
        """What it says."""
        status, output, lines = self.run_with(LIBRARY, conf)
        self.assertEqual((status, output), (0, "8\n"), lines)
        return lines

    def test_jemalloc_s_lines(self):
        """Malformed strings, unknown keys, values out of range: jemalloc's line, once. (jemalloc 5.3.0 says some of
        them twice; newer ones add the rest of the string after " -- ".)"""
        for conf in ("foo:bar", "prof:yes", "prof:", "prof", ",", "prof:true,", "prof_active:TRUE",
                     "prof:true,,prof_final:true", "prof:true prof_final:true", "lg_prof_interval:99",
                     "lg_prof_interval:-2", "lg_prof_sample:x", "lg_prof_sample:99", "lg_prof_sample:-1",
                     "lg_prof_sample:18446744073709551616", "prof_time_resolution:low", "prof_leak_error:true,prof_final:false",
                     "prof_recent_alloc_max:-2", "pröf:true", "prof\t:true", "thp:sometimes", "junk:maybe"):
            with self.subTest(conf=conf):
                status, output, expected = self.run_with(JEMALLOC, conf)
                self.assertEqual((status, output), (0, "8\n"))
                lines = self.assert_goes_on(conf)
                self.assertEqual({line.split(" -- ")[0] for line in lines}, set(expected))
                self.assertEqual(len(lines), len(set(lines)))

    def test_an_empty_key(self):
        """An unknown one. (jemalloc 5.3.0 takes it for the value of some other option, or says nothing.)"""
        for conf in (":", ":true"):
            self.assertEqual(self.assert_goes_on(conf), [f"{SAYS}Invalid conf pair: {conf}"])

    def test_abort_conf(self):
        """Who asks for it is ended by SIGABRT, with jemalloc's words; not if all is well."""
        for conf, status in (("abort_conf:true,foo:bar", -signal.SIGABRT), ("abort_conf:true,prof:true", 0)):
            with self.subTest(conf=conf):
                expected = self.run_with(JEMALLOC, conf)
                self.assertEqual(expected[0], status)
                self.assertEqual(self.run_with(LIBRARY, conf), expected)

    def test_64_kib_of_options(self):
        """Of one key, of one value, of good pairs, of bad pairs: at most a line for each bad pair."""
        for what, conf, most in (("key", "k" * OPTION_BYTES + ":1", 1), ("no value", "k" * OPTION_BYTES, 1),
                                 ("number", "lg_prof_sample:" + "1" * OPTION_BYTES, 1),
                                 ("prefix", "prof_prefix:" + "/p" * (OPTION_BYTES // 2), 0),
                                 ("good pairs", "prof:true," * (OPTION_BYTES // 10) + "prof:true", 0),
                                 ("commas", "," * OPTION_BYTES, 1), ("colons", ":" * OPTION_BYTES, 1),
                                 ("bad pairs", "a:b," * (OPTION_BYTES // 4) + "a:b", OPTION_BYTES // 4 + 1)):
            with self.subTest(what=what):
                self.assertLessEqual(len(self.assert_goes_on(conf)), most)

    def test_every_byte_as_a_key(self):
        for byte in range(1, 256):
            key = bytes([byte])
            process = subprocess.run([target("contexts"), "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     env={"LD_PRELOAD": LIBRARY, b"MALLOC_CONF": b"prof" + key + b"true"}, check=False)
            self.assertEqual((process.returncode, process.stdout), (0, b"8\n"), key)
            self.assertLessEqual(process.stderr.count(b"\n"), 1 if key != b"\n" else 2, process.stderr)
