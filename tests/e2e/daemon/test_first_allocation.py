# SPDX-License-Identifier: Apache-2.0
"""The first allocations of a process are recorded, at the rate that the daemon or a rule sets, although the daemon hears of
the process after them.

Error bounds: none.
"""

import os
import shutil
import signal

import control
from harness import LIBRARY, target, wait_until

DAEMON = ["--budget", "0"]
COUNT = 3000
STARTS = 20
AT_ONCE = 200
MIB = 1 << 20


def start(lab, name="keeps", count=COUNT, library=LIBRARY):
    keeper = lab.program(lab.copy("keeps", name), count, env={"LD_PRELOAD": library}, talks=True)
    keeper.target_pid = keeper.pid
    return keeper


def assert_kept(keepers):
    for keeper in keepers:
        assert keeper.answer() == "kept"


def assert_whole(daemon, keepers):
    assert_kept(keepers)
    assert_recorded(daemon, keepers)


def assert_recorded(daemon, keepers):
    """From the first allocation to the last."""
    listed = daemon.processes()
    for keeper in keepers:
        entry = listed[keeper.pid]
        assert (entry["samples"], entry["live_objects"], entry["lg_sample"], entry["losses"]) == (COUNT, COUNT, 0, {})


def test_a_new_rate_holds_from_the_first_allocation(lab, daemon):
    """SIGHUP: the library of the daemon tells the new rate before the daemon says that it has reloaded its rules."""
    for rate in ("lg-sample=20", "exact", "lg-sample=15", "exact"):
        daemon.reload(rate)
        keeper = start(lab)
        if rate == "exact":
            assert_whole(daemon, [keeper])
        else:
            assert keeper.answer() == "kept"
            assert f"lg-sample={daemon.processes()[keeper.pid]['lg_sample']}" == rate
        keeper.ends()


def test_each_start(lab, daemon):
    daemon.reload("exact")
    for _ in range(STARTS):
        keeper = start(lab)
        assert_whole(daemon, [keeper])
        keeper.ends()


def test_many_at_once(lab, daemon):
    daemon.reload("exact")
    assert_whole(daemon, [start(lab) for _ in range(AT_ONCE)])


def test_rate_of_a_rule(lab, start_daemon):
    """The process that the rule is about is exact from its first allocation. Another one goes to the rate of the default.
    A daemon of its own: one that had another rate before may still tell that for a moment."""
    daemon = start_daemon("--lg-sample", "14", "--rule", "comm=precious exact")
    # What counts is what the library knows: the daemon hears of the processes when they have allocated.
    daemon.process.signal(signal.SIGSTOP)
    keepers = [start(lab, "precious") for _ in range(3)]
    assert_kept(keepers)
    daemon.process.signal(signal.SIGCONT)
    assert_recorded(daemon, keepers)
    other = start(lab, "other")
    assert other.answer() == "kept"
    assert daemon.processes()[other.pid]["lg_sample"] == 14
    block = control.control(other.pid, LIBRARY)
    assert block.collector_lg_sample == 14


def test_process_that_is_not_recorded(lab, daemon):
    """A rule excludes it: the daemon takes the rate back."""
    daemon.reload("exact", "rule=comm=secret record=off")
    secret = start(lab, "secret")
    assert secret.answer() == "kept"
    wait_until(lambda: control.control(secret.pid, LIBRARY).collector_lg_sample == control.NO_RATE,
               "it samples at its own rate")
    assert secret.pid not in daemon.processes()


def test_without_a_daemon(lab, daemon):
    """The probes of a killed daemon stay for the next one. A process goes back to its own rate some time after its start."""
    daemon.reload("exact")
    daemon.kill()
    first, later = start(lab), start(lab, count=control.UNCONFIRMED_SAMPLES)
    assert (first.answer(), later.answer()) == ("kept", "kept")
    assert control.control(first.pid, LIBRARY).collector_lg_sample == 0
    assert control.control(later.pid, LIBRARY).collector_lg_sample == control.NO_RATE
    daemon.start()
    assert daemon.wait_recorded(first.pid)["samples"] == COUNT


def test_program_that_calls_the_sample_library(lab, daemon):
    """The first process of a file that the daemon did not know makes it known; the next one is exact."""
    daemon.reload("exact")
    command = target("pool"), "1000", "500", "0"
    lab.program(*command).ends()
    daemon.settle()
    second = lab.program(*command)
    second.ends()
    entry = daemon.wait_ended(second.pid)
    assert (entry["samples"], entry["losses"]) == (2500, {})


def test_beginning_that_was_not_seen(lab, start_daemon):
    """What a process had allocated before the daemon began is a loss, everywhere. Its profile is not called complete."""
    keeper = start(lab)
    assert keeper.answer() == "kept"
    daemon = start_daemon("--exact", losses_allowed=("beginning",))
    entry = daemon.wait_recorded(keeper.pid)
    assert (entry["samples"], entry["losses"]) == (0, {"beginning": 1})
    assert daemon.row(keeper.pid)["LOSSES"] == "1"
    (metric,) = [value for name, value in daemon.metrics().items() if f'pid="{keeper.pid}"' in name and "beginning" in name]
    assert metric == 1
    path = lab.path("late.txt")
    daemon.dump(keeper.pid, path)
    said = "1 beginning of the process not recorded: what it had allocated before is missing (estimated "
    with open(path, encoding="utf-8") as file:
        text = file.read()
    size = int(text.split(said)[1].split()[0])
    assert COUNT * 64 <= size < COUNT * 64 + MIB
    report = lab.answer_of("report", path)
    assert said in report and "every allocation is a sample" in report and "every allocation is recorded" not in report
    assert said in daemon.get(f"/pid/{keeper.pid}/profile.json").body.decode()


def replace(lab, library):
    """As a package does: another file has the library's path."""
    os.rename(shutil.copy(library, lab.path("new.so")), library)


def test_library_that_is_replaced(lab, start_daemon):
    """The daemon attaches to the new file at once. A process goes on with the old one."""
    library = shutil.copy(LIBRARY, lab.path("installed.so"))
    daemon = start_daemon("--exact", "--library", library)
    assert_whole(daemon, [start(lab, library=library)])
    for _ in range(3):
        replace(lab, library)
        daemon.settle()
        assert_whole(daemon, [start(lab, library=library)])
    # Another way: the old file is removed, and the new one is written in its place.
    os.unlink(library)
    shutil.copy(LIBRARY, library)
    daemon.settle()
    assert_whole(daemon, [start(lab, library=library)])
    assert [entry["live_objects"] for entry in daemon.processes().values()] == [COUNT] * 5


def test_library_that_a_reload_finds(lab, start_daemon):
    """Its folder came after the daemon's start, so nothing has watched it."""
    folder = lab.path("later")
    library = os.path.join(folder, "libheaptap.so")
    os.mkdir(folder)
    shutil.copy(LIBRARY, library)
    daemon = start_daemon("--exact", "--library", library)
    shutil.rmtree(folder)
    os.mkdir(folder)
    shutil.copy(LIBRARY, library)
    daemon.reload("exact")
    assert_whole(daemon, [start(lab, library=library)])


def test_library_that_is_preloaded_everywhere(lab, new_daemon):
    """The daemon knows the libraries in /etc/ld.so.preload, here one of a private file system, before a process maps them."""
    library = shutil.copy(LIBRARY, lab.path("everywhere.so"))
    for name in ("upper", "work"):
        os.mkdir(lab.path(name))
    script = (f"mount -t overlay -o lowerdir=/etc,upperdir={lab.path('upper')},workdir={lab.path('work')} overlay /etc && "
              f"echo {library} >/etc/ld.so.preload && exec \"$@\"")
    # The daemon has the library itself.
    daemon = new_daemon("--exact", losses_allowed=("beginning",))
    session = daemon.launch(before=["unshare", "--mount", "sh", "-c", script, "sh"])
    session.wait_said("heaptap: recording; ")
    assert_whole(daemon, [start(lab, library=library)])
