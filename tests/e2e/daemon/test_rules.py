# SPDX-License-Identifier: Apache-2.0
"""Rules of the daemon: which processes are recorded, and how; what SIGHUP changes.

Where a rule changes the rate, the allocator learns of it at its next slow path: what a test allocates after that is
exact. Error bounds: none.
"""

import os
import shutil
import signal

from daemon import EXACT
from harness import target, wait_until
from symbols import kept

NOBODY = 65534


def wait_recorded(daemon, pid):
    return wait_until(lambda: daemon.processes().get(pid), f"{pid} is recorded")


def assert_rate(daemon, puppet, rate):
    """What list says, and what the process does."""
    def said():
        entry = daemon.processes().get(puppet.target_pid)
        return entry is not None and entry["lg_sample"] == rate
    wait_until(said, f"{puppet.target_pid} is sampled every 2^{rate} bytes")
    # The control block was written before list could say so.
    puppet.ask("churn 70000 64")  # through every free list
    before = daemon.processes()[puppet.target_pid]["samples"]
    puppet.ask("churn 4096 1024")
    samples = daemon.processes()[puppet.target_pid]["samples"] - before
    if rate == 0:
        assert samples == 4096
    else:
        # Poisson, with a mean of some hundred at the densest rate that is used here: ten standard errors.
        mean = (4096 << 10) / (1 << rate)
        assert abs(samples - mean) < 10 * mean ** 0.5 + 10, (samples, mean)


def named(lab, name, **options):
    """A puppet whose command has this name."""
    path = lab.path(name)
    if not os.path.exists(path):
        shutil.copy(target("puppet"), path)
    puppet = lab.preloaded(path, talks=True, **options)
    puppet.target_pid = int(puppet.answer().split()[1])
    return puppet


def reload_with(daemon, configuration, said="read the configuration again"):
    with open(daemon.configuration, "w", encoding="ascii") as file:
        file.write(configuration)
    times = daemon.process.stderr().count(said)
    daemon.process.signal(signal.SIGHUP)
    return daemon.wait_said(said, count=times + 1)


def test_command(lab, start_daemon):
    """The first rule that holds counts; a pattern is a pattern; who has no rule has the defaults."""
    daemon = start_daemon("--lg-sample", "15", "--rule", "comm=red* lg-sample=14", "--rule", "comm=redder exact",
                          "--rule", "comm=blue exact")
    for name, rate in (("red", 14), ("redder", 14), ("blue", 0), ("bluer", 15)):
        assert_rate(daemon, named(lab, name), rate)


def test_user(lab, start_daemon):
    daemon = start_daemon("--lg-sample", "15", "--rule", f"user={NOBODY} exact", "--rule", "user=root lg-sample=14")
    assert_rate(daemon, named(lab, "puppet", user=NOBODY, group=NOBODY, extra_groups=[]), 0)
    assert_rate(daemon, named(lab, "puppet"), 14)


def test_control_group(lab, start_daemon, new_cgroup):
    cgroup = new_cgroup(".slice")
    daemon = start_daemon("--lg-sample", "15", "--rule", f"cgroup={cgroup.path.removesuffix('.slice')}*.slice exact")
    inside = named(lab, "puppet", preexec_fn=cgroup.enter)
    assert_rate(daemon, inside, 0)
    assert_rate(daemon, named(lab, "puppet"), 15)
    inside.ends()


def test_pid_and_reload(lab, start_daemon):
    """A rule for one PID can be written when it is known: SIGHUP."""
    daemon = start_daemon()
    one, other = named(lab, "puppet"), named(lab, "puppet")
    wait_recorded(daemon, one.target_pid)
    wait_recorded(daemon, other.target_pid)
    reload_with(daemon, f"lg-sample=15\nrule=pid={one.target_pid} exact\n")
    assert_rate(daemon, one, 0)
    assert_rate(daemon, other, 15)
    reload_with(daemon, "lg-sample=14\n")
    assert_rate(daemon, one, 14)
    assert_rate(daemon, other, 14)


def test_a_bad_configuration_changes_nothing(lab, start_daemon):
    daemon = start_daemon()
    reload_with(daemon, "rule=comm=puppet exact\n")
    puppet = named(lab, "puppet")
    assert_rate(daemon, puppet, 0)
    reload_with(daemon, "rule=comm=puppet lg-sample=lots\n", "the configuration stays as it was")
    assert_rate(daemon, puppet, 0)
    assert_rate(daemon, named(lab, "puppet"), 0)
    reload_with(daemon, "")


def test_processes_that_run_already(lab, start_daemon):
    """Rules hold for them, too."""
    exact, private, other = named(lab, "exact"), named(lab, "private"), named(lab, "other")
    daemon = start_daemon("--lg-sample", "15", "--rule", "comm=exact exact", "--rule", "comm=private record=off")
    assert_rate(daemon, exact, 0)
    assert_rate(daemon, other, 15)
    assert set(daemon.processes()) == {exact.target_pid, other.target_pid}
    private.ask("churn 100000 1024")
    assert set(daemon.processes()) == {exact.target_pid, other.target_pid}


def test_record_off(lab, start_daemon):
    """Such a process is nowhere, and costs nothing; its neighbour is recorded. So are they after another start."""
    daemon = start_daemon("--exact", "--dump-at-exit", "always", "--rule", "comm=private* record=off")
    private = named(lab, "private", env=EXACT)
    public = named(lab, "puppet", env=EXACT)
    public.ask("keep 1000 100")
    wait_recorded(daemon, public.target_pid)
    private.ask("keep 1000 100")
    assert set(daemon.processes()) == {public.target_pid}
    assert daemon.get(f"/pid/{private.target_pid}/heap").status == 404
    daemon.restart()
    private.ask("keep 1000 100")
    assert set(daemon.processes()) == {public.target_pid}
    public.ask("keep 1000 100")
    private.ends()
    public.ends()
    wait_until(daemon.ended, "one has ended")
    assert [entry["pid"] for entry in daemon.ended()] == [public.target_pid]
    assert kept(lab.only_dump(public.target_pid, "f")) == 2000
    assert lab.dumps(private.target_pid) == []


def test_record_off_and_on_again(lab, start_daemon):
    """By SIGHUP. What lives from the time before is not known when it is recorded again, as with any process that
    is met late; what comes then is."""
    daemon = start_daemon("--exact")
    puppet = named(lab, "puppet", env=EXACT)
    puppet.ask("keep 1000 100")
    wait_recorded(daemon, puppet.target_pid)
    reload_with(daemon, "rule=comm=puppet record=off\n")
    assert daemon.processes() == {}
    puppet.ask("drop")
    puppet.ask("keep 1000 100")
    reload_with(daemon, "")
    wait_recorded(daemon, puppet.target_pid)
    before = daemon.processes()[puppet.target_pid]["live_objects"]
    puppet.ask("keep 1000 100")
    assert daemon.processes()[puppet.target_pid]["live_objects"] == before + 1000
    assert before == 0
