# SPDX-License-Identifier: Apache-2.0
"""Tests by name, for tests/repeat and tests/mutations/run: what a name builds, what it runs, and what the tests reported.

    unit:FILTER                tests of the collector; FILTER is GoogleTest's
    unit-asan:FILTER           the same with AddressSanitizer and UndefinedBehaviorSanitizer
    unit-tsan:FILTER           the same with ThreadSanitizer
    allocator:PROGRAM:FILTER   PROGRAM: plain, asan or tsan
    allocator:guest            all tests of the guest; allocator:preload: of the preloaded library; allocator:owners: of
                               both in programs with functions of their own
    stress:PROGRAM             the stress test of the allocator; PROGRAM as above
    e2e:SELECTION              paths, or an expression for pytest's -k
    lint:TARGET                make lint-TARGET
    make:TARGET                any target
    phases:TARGETS             what tests/phases runs: targets, with `--` between lists that run in parallel
"""

import contextlib
import dataclasses
import glob
import os
import re
import signal
import subprocess
import tempfile
import xml.etree.ElementTree

# Steps of each thread, as `make test-allocator` takes them.
STRESS_STEPS = {"plain": 40000, "asan": 20000, "tsan": 8000}
UNIT_PROGRAMS = {"unit": "build/tests/unit/unit_tests", "unit-asan": "build/asan/unit_tests",
                 "unit-tsan": "build/tsan/unit_tests"}
E2E_TARGETS = ("build/heaptap", "build/libheaptap.so", "build/libheaptap-guest.so", "targets")
E2E_REPORTS = ("build/e2e.xml", "build/e2e-alone.xml")
PHASES = "build/repeat/phases"
# How long a program may take to end after an interrupt, which lets pytest end what its tests have started.
END_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class NamedTest:
    """`targets`: what make has to build before. `reports_tests`: the command writes a report of each test."""
    name: str
    command: tuple
    targets: tuple = ()
    environment: tuple = ()  # of pairs
    reports_tests: bool = False


@dataclasses.dataclass(frozen=True)
class Result:
    """`failure`: the first line of the message; None if the test passed."""
    test: str
    failure: str | None = None


def _gtest(name, program, test_filter, environment=()):
    return NamedTest(name, (program, f"--gtest_filter={test_filter}"), (program,), environment,
                     reports_tests=True)


def _make(name, target, targets=()):
    return NamedTest(name, ("make", "--no-print-directory", target), targets)


def _allocator(name, rest):
    program, _, test_filter = rest.partition(":")
    if program in ("guest", "preload", "owners") and not test_filter:
        return _make(name, f"test-allocator-{program}")
    if program not in STRESS_STEPS or not test_filter:
        raise ValueError(f"{name}: use allocator:plain:FILTER (or asan, tsan), allocator:guest, allocator:preload or allocator:owners")
    # These tests need statistics, which others must not have (tests/allocator/rules.mk).
    options = "prof:true,prof_stats:true" if test_filter.startswith("SampleStatisticsTest") else "prof:true"
    return _gtest(name, f"build/test-allocator/{program}/unit", test_filter,
                  (("HEAPTAP_CONF", "prof_seed:1"), ("MALLOC_CONF", options)))


def _stress(name, program):
    if program not in STRESS_STEPS:
        raise ValueError(f"{name}: use stress:plain, stress:asan or stress:tsan")
    path = f"build/test-allocator/{program}/stress"
    return NamedTest(name, (path, "4", "5", str(STRESS_STEPS[program])), (path,), (("HEAPTAP_CONF", "prof_seed:1"),))


def parse(name):
    """The NamedTest of a name. Raises ValueError."""
    kind, _, rest = name.partition(":")
    if not rest:
        raise ValueError(f"{name}: not KIND:SELECTION, for example unit:Difference.*")
    if kind in UNIT_PROGRAMS:
        return _gtest(name, UNIT_PROGRAMS[kind], rest)
    if kind == "allocator":
        return _allocator(name, rest)
    if kind == "stress":
        return _stress(name, rest)
    if kind == "e2e":
        return NamedTest(name, ("make", "--no-print-directory", "test-e2e", f"E2E_TESTS={rest}"), E2E_TARGETS,
                         reports_tests=True)
    if kind == "lint":
        return _make(name, f"lint-{rest}")
    if kind == "make":
        return _make(name, rest)
    if kind == "phases":
        return NamedTest(name, ("tests/phases", PHASES, *rest.split()))
    raise ValueError(f"{name}: no kind of tests is called {kind}")


# --- reports ---


def first_line(text):
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def read_report(text, prefix=""):
    """Results of a JUnit report, which pytest and GoogleTest write. Skipped tests are left out."""
    results = []
    for case in xml.etree.ElementTree.fromstring(text).iter("testcase"):
        if case.find("skipped") is not None or case.get("status") == "notrun":
            continue
        bad = [case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None]
        name = f"{prefix}{case.get('classname')}.{case.get('name')}"
        message = first_line(bad[0].get("message") or bad[0].text or "") or "failed" if bad else None
        results.append(Result(name, message))
    return merged(results)


def merged(results):
    """One result for each test: pytest reports a failure of the teardown apart from the test's own."""
    by_name = {}
    for result in results:
        if result.test not in by_name or by_name[result.test].failure is None:
            by_name[result.test] = result
    return list(by_name.values())


def last_test_begun(log):
    """The test that a program of GoogleTest was running when it died, if its output in the file `log` says so."""
    with open(log, encoding="utf-8", errors="replace") as file:
        begun = re.findall(r"^\[ RUN      \] (\S+)", file.read(), re.MULTILINE)
    return begun[-1] if begun else None


def read_reports(paths, prefix=""):
    results = []
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        try:
            results += read_report(text, prefix)
        except xml.etree.ElementTree.ParseError:
            results.append(Result(f"{prefix}{os.path.basename(path)}", "the report is torn"))
    return merged(results)


# --- running ---


def run_command(command, root, log, seconds, environment=()):
    """Runs a command with its output in the file `log`. Returns its exit status, or None if it took too long: then it and
    all that it started were ended."""
    with open(log, "wb") as output:
        # A make that is started here has its own job slots.
        inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        # A job in the background of a shell ignores SIGINT, and so would the command.
        command = ("env", "--default-signal=INT", *command)
        process = subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   env={**inherited, **dict(environment)}, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process):
    """Ends a process that still runs, and the rest of its group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tail(path):
    """The last line of a file that is not empty."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return first_line("\n".join(reversed(file.read().splitlines())))


def build(test, root, log, seconds):
    """Builds what the test needs. Returns whether that succeeded."""
    return not test.targets or run_command(("make", "--no-print-directory", *test.targets), root, log, seconds) == 0


def _remove_e2e_reports(root):
    for path in E2E_REPORTS:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(root, path))


def _reports(root, folder, has_e2e):
    """Paths of the reports in a folder, and of those of the end-to-end tests."""
    paths = sorted(glob.glob(f"{folder}/**/*.xml", recursive=True))
    return paths + [path for path in (os.path.join(root, name) for name in E2E_REPORTS) if has_e2e and os.path.exists(path)]


def read_phases(root, targets):
    """Results of tests/phases: of each test that was reported, and of each phase. A phase fails by its status, unless one
    of its tests was reported as failed."""
    results = []
    for target in targets:
        folder = os.path.join(root, PHASES)
        tests = read_reports(_reports(root, f"{folder}/{target}.reports", target == "test-e2e"), prefix=f"{target}:")
        try:
            with open(f"{folder}/{target}", encoding="utf-8") as file:
                status = file.read().split()[-1]
        except (FileNotFoundError, IndexError):
            status = "unknown"
        fails = status != "0" and all(test.failure is None for test in tests)
        results += [*tests, Result(target, f"exit status {status}" if fails else None)]
    return results


def run(test, root, log, seconds):
    """Runs a test and returns a Result for each test that it reported. A failure that no test reported is a Result with
    the name of the NamedTest. `log` gets the output. After `seconds` the test has failed; None: no limit."""
    kind, _, rest = test.name.partition(":")
    _remove_e2e_reports(root)
    with tempfile.TemporaryDirectory(prefix="heaptap-reports.") as folder:
        status = run_command(test.command, root, log, seconds, (*test.environment, ("GTEST_OUTPUT", f"xml:{folder}/")))
        results = read_reports(_reports(root, folder, kind == "e2e"), prefix=f"{kind}:")
    if kind == "phases":
        results = read_phases(root, [target for target in rest.split() if target != "--"])
    has_failure = any(result.failure is not None for result in results)
    if status is None:
        results.append(Result(test.name, f"did not end in {seconds} s"))
    elif status != 0 and not has_failure:
        died_in = last_test_begun(log)
        results.append(Result(f"{kind}:{died_in}" if died_in else test.name, f"exit status {status}: {tail(log)}"))
    elif test.reports_tests and not results:
        results.append(Result(test.name, "no test of this name ran"))
    elif not test.reports_tests and kind != "phases":
        results.append(Result(test.name))
    return results
