# SPDX-License-Identifier: Apache-2.0
"""End-to-end tests: heaptap, its library and real programs on the real kernel, as root.

    make test-e2e                                      all except the slow ones, in two lanes
    /usr/bin/python3 -m pytest tests/e2e -k NAME       some, one after the other
    /usr/bin/python3 -m pytest tests/e2e --collect-only -q

How to write a test: a function test_*() in the folder of its theme, with the fixtures that it needs:

    lab           a new folder; starts programs, heaptap sessions and puppets there, and reads the dumps
    daemon        a running daemon that the tests of a module share; its arguments are the module's DAEMON
    start_daemon  start_daemon(ARGUMENTS...): a daemon for one test
    new_daemon    the same, not yet started
    allocator     twice: Debian's jemalloc, to prove an expectation, and heaptap
    heaptap       heaptap only, in the same form
    held          held(WHAT, BOUND, MEASURED) adds a row to the table that is printed at the end

A test asserts what must be true, not what was observed: exact numbers where recording is exact, otherwise a bound with
its reason. It waits for conditions (wait_until, wait_said), never for a time. Bounds in seconds go through TIME_SCALE.
After each test the books of every session must balance, every dump must be well formed, and nothing of a daemon may be
left in the kernel; processes that are still running are killed.

Each process that runs tests has its own namespaces and control group (lib/place.py), and the name of a test is its seed
(HEAPTAP_CONF). A test that measures the machine is marked whole_machine.

A test needs eBPF unless it is marked without_bpf; where eBPF is not permitted it fails with the doctor's reason.

    HEAPTAP_SKIP_BPF=1       skips the tests that need eBPF
    HEAPTAP_KEEP=1           keeps the tests' folders
    HEAPTAP_LONG=1           gives endurance tests their full time
    HEAPTAP_TIME_SCALE=N     makes every bound in seconds N times as long
    HEAPTAP=FILE             tests another build of heaptap
"""

import contextlib
import os
import shutil
import signal
import sys
import tempfile

import pytest

# Keeps the source tree clean; only this module was already compiled.
sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
shutil.rmtree(os.path.join(os.path.dirname(__file__), "__pycache__"), ignore_errors=True)
pytest.register_assert_rewrite("allocators", "attackers", "attacks", "books", "daemon", "dumping", "heap_v2", "innocents", "lab", "law", "lines", "loader",
                               "one_liners", "security")

import allocators  # noqa: E402
import harness  # noqa: E402
import machine  # noqa: E402
from daemons import Daemon  # noqa: E402
from lab import Lab  # noqa: E402
from memory_cgroup import MemoryCgroup  # noqa: E402

# Shells ignore these signals in background jobs, and programs under test would inherit that.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

# A test that takes longer hangs.
TEST_LIMIT_SECONDS = 400
_machine = machine.Machine()
_setup_seconds = {}
_held = []


def pytest_configure(config):
    if config.option.timeout is None:
        config.option.timeout = TEST_LIMIT_SECONDS * harness.TIME_SCALE
    if config.option.collectonly:
        return
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        stop_beside_other_daemons()
    # The process that only hands out tests to others stays where it is.
    if not is_worker and config.getoption("numprocesses", None):
        return
    harness.PLACE.enter()
    # xdist names one in the /tmp of the process that hands out tests.
    config.option.basetemp = "/tmp/pytest"
    harness.become_subreaper()
    harness.own_copy()


def stop_beside_other_daemons():
    """A daemon that records every process, also those of tests, would make many tests fail. Daemons of tests are
    restricted, or hold the machine alone."""
    _machine.take(alone=False)
    found = machine.daemons_of_everyone()
    _machine.leave()
    if found:
        pytest.exit(f"these daemons record the processes of tests too; end them first: {', '.join(found)}", returncode=1)


def pytest_unconfigure():
    if harness.PLACE.group is not None:
        harness.PLACE.leave(keep=os.environ.get("HEAPTAP_KEEP") == "1")

# --- what a test needs ---


def pytest_itemcollected(item):
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    if parameters.get("allocator") == "jemalloc":
        item.add_marker("without_bpf")
    if not item.get_closest_marker("without_bpf"):
        item.add_marker("needs_bpf")


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Takes the machine's lock before a test's time begins. Tests of one module keep it."""
    _machine.take(alone=bool(item.get_closest_marker("whole_machine")))
    yield
    if nextitem is None or nextitem.module != item.module:
        _machine.leave()


@pytest.fixture(autouse=True)
def _bpf(request):
    if not request.node.get_closest_marker("needs_bpf"):
        return
    why = harness.why_no_bpf()
    if os.environ.get("HEAPTAP_SKIP_BPF") == "1":
        pytest.skip(f"HEAPTAP_SKIP_BPF=1 asks for it ({why or 'eBPF is permitted here'})")
    if why is not None:
        pytest.fail(f"needs eBPF, which heaptap cannot use here (HEAPTAP_SKIP_BPF=1 skips the test):\n{why}",
                    pytrace=False)


@contextlib.contextmanager
def _folder(of):
    """A folder that all users may read: some programs run as another user."""
    path = tempfile.mkdtemp(prefix=harness.FOLDER)
    os.chmod(path, 0o755)
    yield path
    if os.environ.get("HEAPTAP_KEEP") == "1":
        print(f"{of} in {harness.PLACE.temporary}/{os.path.basename(path)}")
    else:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def folder(request):
    with _folder(request.node.nodeid) as path:
        yield path


@pytest.fixture
def lab(folder):
    lab = Lab(folder)
    try:
        yield lab
        lab.check_all()
    finally:
        harness.reap_all()


@pytest.fixture
def new_daemon(lab):
    """Makes daemons that are not started yet and end with the test."""
    _shared.end()
    made = []

    def make(*arguments, **options):
        made.append(Daemon(lab.folder, *arguments, **options))
        return made[-1]
    with contextlib.ExitStack() as stack:
        yield make
        for daemon in made:
            stack.callback(daemon.end)


@pytest.fixture
def start_daemon(new_daemon):
    def start(*arguments, **options):
        daemon = new_daemon(*arguments, **options)
        daemon.start()
        return daemon
    return start


class _Shared:
    """The daemon that tests of a module share. Only one daemon may run at a time: the first to record a process sets its
    rate."""

    def __init__(self):
        self.daemon = None
        self._stack = contextlib.ExitStack()

    def start(self, module):
        if self.daemon is None:
            path = self._stack.enter_context(_folder(module.__name__))
            self.daemon = Daemon(path, *module.DAEMON, losses_allowed=getattr(module, "LOSSES_ALLOWED", ()))
            self.daemon.is_shared = True
            self._stack.callback(self.daemon.end)
            self.daemon.start()
        return self.daemon

    def end(self):
        harness.spared.clear()
        self.daemon = None
        self._stack.close()


_shared = _Shared()


@pytest.fixture(scope="module")
def _end_of_shared_daemon():
    yield
    _shared.end()


@pytest.fixture
def daemon(request, lab, _end_of_shared_daemon):
    """A daemon for all tests of a module, with the module's DAEMON and LOSSES_ALLOWED. A test leaves it unchanged: the
    test's processes end, and the daemon closes their books before the next test begins."""
    daemon = _shared.start(request.module)
    yield daemon
    harness.reap_all()
    harness.wait_until(lambda: not daemon.processes(), "the daemon is done with the processes of the test")
    for dump in daemon.dumps():
        dump.read().check()
        os.unlink(dump.path)


@pytest.fixture
def new_cgroup(lab):
    """Makes memory cgroups; see MemoryCgroup."""
    made = []

    def make(suffix="", **options):
        made.append(MemoryCgroup(f"heaptap-test-{os.getpid()}-{len(made)}{suffix}", **options))
        return made[-1]
    yield make
    harness.reap_all()
    for cgroup in made:
        cgroup.remove()


@pytest.fixture(params=["jemalloc", "heaptap"])
def allocator(request, lab):
    return lab.checked({"jemalloc": allocators.Jemalloc, "heaptap": allocators.Heaptap}[request.param](lab))


@pytest.fixture
def heaptap(lab):
    return lab.checked(allocators.Heaptap(lab))


# --- what is printed ---

# Of what a session has said, the end is printed.
_LINES_SAID = 30
# A session that a failed test leaves may say at its end what was lost.
_SECONDS_TO_SAY = 5


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what its sessions of heaptap have said."""
    outcome = yield
    report = outcome.get_result()
    if call.when != "call" or not report.failed:
        return
    for session in getattr(item.funcargs.get("lab"), "sessions", ()):
        with contextlib.suppress(AssertionError, OSError):
            session.wait(_SECONDS_TO_SAY)
        with contextlib.suppress(OSError):
            said = session.stderr().splitlines()[-_LINES_SAID:]
            report.sections.append((" ".join(session.command), "\n".join(said)))


def pytest_report_teststatus(report):
    """Prints one line for each test, with its seconds and the reason of a failure, instead of pytest's letter."""
    if report.when == "collect":
        return None
    if report.when == "setup":
        _setup_seconds[report.nodeid] = report.duration
    if report.when == "setup" and report.passed or report.when == "teardown" and not report.failed:
        return None
    outcome = "error" if report.when != "call" and report.failed else report.outcome
    if report.skipped and hasattr(report, "wasxfail"):
        outcome = "xfailed"
    seconds = report.duration + (_setup_seconds.pop(report.nodeid, 0) if report.when == "call" else 0)
    crash = getattr(report.longrepr, "reprcrash", None) if report.failed else None
    why = f"        {crash.path}:{crash.lineno}: {crash.message.splitlines()[0]}\n" if crash else ""
    return outcome, f"{outcome:7} {seconds:6.1f} s  {report.nodeid}\n{why}", outcome.upper()


@pytest.fixture
def held(request):
    """Notes a bound that held: its name, the bound and the measured value."""
    def note(what, bound, measured):
        request.node.user_properties.append(("held", [str(what), str(bound), str(measured)]))
    return note


def pytest_runtest_logreport(report):
    if report.when == "teardown":
        _held.extend([report.nodeid, *value] for name, value in report.user_properties if name == "held")


def pytest_addoption(parser):
    parser.addoption("--held-table", metavar="FILE", help="where the table of bounds that held is written, in Markdown")


def pytest_terminal_summary(terminalreporter, config):
    if not _held:
        return
    terminalreporter.section("bounds that held")
    rows = [["test", "what", "bound", "measured"], *_held]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    for line in lines:
        terminalreporter.write_line(line)
    path = config.getoption("held_table")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
