# SPDX-License-Identifier: Apache-2.0
"""The ledger of tests/repeat: how often each test ran and failed, and what it said, under each condition ("quiet", "load 4").

The file is JSON. It belongs to one version of the sources, and is replaced as a whole, so that a repetition that was
stopped can go on.
"""

import json
import os

CONFIDENCE = 0.95


def bound(runs):
    """The failure probability that as many runs without a failure exclude with 95 % confidence: about 3/runs (the rule of
    three)."""
    return 1 - (1 - CONFIDENCE) ** (1 / runs)


class Ledger:
    """`rounds[condition][name]`: the finished repetitions of a named test. `tests[condition][test]`: a dict of the number
    of `runs` and the list of `failures`, with the first line of each."""

    def __init__(self, version):
        self.version = version
        self.rounds = {}
        self.tests = {}

    def add(self, condition, name, results):
        """Notes one repetition of a named test."""
        tests = self.tests.setdefault(condition, {})
        for result in results:
            entry = tests.setdefault(result.test, {"runs": 0, "failures": []})
            entry["runs"] += 1
            if result.failure is not None:
                entry["failures"].append(result.failure)
        rounds = self.rounds.setdefault(condition, {})
        rounds[name] = rounds.get(name, 0) + 1

    def finished(self, condition, name):
        return self.rounds.get(condition, {}).get(name, 0)

    def failed(self):
        """(condition, test, entry) of each test that ever failed, those that failed most first."""
        rows = [(condition, test, entry) for condition, tests in self.tests.items() for test, entry in tests.items()
                if entry["failures"]]
        return sorted(rows, key=lambda row: (-len(row[2]["failures"]) / row[2]["runs"], row[0], row[1]))

    def table(self):
        """Lines: what failed and what it said, then what the runs without a failure show."""
        lines = []
        if self.failed():
            lines += ["failures/runs  condition  test"]
        for condition, test, entry in self.failed():
            lines.append(f"{len(entry['failures']):8}/{entry['runs']:<4}  {condition:9}  {test}")
            for message in dict.fromkeys(entry["failures"]):
                lines.append(f"{'':26}{entry['failures'].count(message)} x {message}")
        for condition, tests in sorted(self.tests.items()):
            passed = [entry["runs"] for entry in tests.values() if not entry["failures"]]
            for runs in sorted(set(passed)):
                lines.append(f"{condition}: {passed.count(runs)} tests did not fail in {runs} runs: each fails in less than "
                             f"{100 * bound(runs):.2g} % of runs (95 % confidence)")
        return lines

    # --- the file ---

    def save(self, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump({"version": self.version, "rounds": self.rounds, "tests": self.tests}, file, indent=1, sort_keys=True)
            file.write("\n")
        os.replace(f"{path}.new", path)

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        ledger = cls(content["version"])
        ledger.rounds, ledger.tests = content["rounds"], content["tests"]
        return ledger
