# SPDX-License-Identifier: Apache-2.0
"""Rules of the daemon: which processes are recorded, and how; what SIGHUP changes.

The allocator notices a new rate at its next slow path; allocations after that are exact. Error bounds: none.
"""

import signal

from daemons import EXACT, NOBODY, NOBODY_ID
from harness import wait_until
from symbols import kept

# No budget: it would change rates, too.
DAEMON = ["--budget", "0"]
# Of processes that are recorded again.
LOSSES_ALLOWED = ("beginning",)


def assert_rate(daemon, puppet, rate):
    """Checks the rate in the list and the samples of the process."""
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
        # Poisson, with a mean of some hundred at the densest rate here: ten standard errors.
        mean = (4096 << 10) / (1 << rate)
        assert abs(samples - mean) < 10 * mean ** 0.5 + 10, (samples, mean)


def test_command(lab, daemon):
    """The first matching rule applies; patterns work; without a rule, the defaults apply."""
    daemon.reload("lg-sample=15", "rule=comm=red* lg-sample=14", "rule=comm=redder exact", "rule=comm=blue exact")
    for name, rate in (("red", 14), ("redder", 14), ("blue", 0), ("bluer", 15)):
        assert_rate(daemon, lab.preloaded_puppet(name), rate)


def test_user(lab, daemon):
    daemon.reload("lg-sample=15", f"rule=user={NOBODY_ID} exact", "rule=user=root lg-sample=14")
    assert_rate(daemon, lab.preloaded_puppet(**NOBODY), 0)
    assert_rate(daemon, lab.preloaded_puppet(), 14)


def test_control_group(lab, daemon, new_cgroup):
    cgroup = new_cgroup(".slice")
    daemon.reload("lg-sample=15", f"rule=cgroup={cgroup.path.removesuffix('.slice')}*.slice exact")
    inside = lab.preloaded_puppet(preexec_fn=cgroup.enter)
    assert_rate(daemon, inside, 0)
    assert_rate(daemon, lab.preloaded_puppet(), 15)
    inside.ends()


def test_control_group_of_a_process(lab, daemon, new_cgroup):
    """Clients see the control group and the unit of a process, also after its end."""
    cgroup = new_cgroup(".service")
    unit = cgroup.path.strip("/").removesuffix(".service")
    daemon.reload("exact")
    inside = lab.preloaded_puppet(preexec_fn=cgroup.enter)
    daemon.wait_recorded(inside.pid)
    outside = lab.preloaded_puppet()
    daemon.wait_recorded(outside.pid)
    def place(entry):
        return entry["service"], entry["control_group"]
    assert place(daemon.processes()[inside.pid]) == (unit, cgroup.path)
    assert daemon.processes()[outside.pid]["service"] is None
    inside.ends()
    assert place(daemon.wait_ended(inside.pid)) == (unit, cgroup.path)


def test_pid(lab, daemon):
    """A rule for one PID can be written when it is known."""
    daemon.reload()
    one, other = lab.preloaded_puppet(), lab.preloaded_puppet()
    for puppet in (one, other):
        daemon.wait_recorded(puppet.pid)
    daemon.reload("lg-sample=15", f"rule=pid={one.pid} exact")
    assert_rate(daemon, one, 0)
    assert_rate(daemon, other, 15)
    daemon.reload("lg-sample=14")
    assert_rate(daemon, one, 14)
    assert_rate(daemon, other, 14)


def test_a_bad_configuration_changes_nothing(lab, daemon):
    daemon.reload("rule=comm=puppet exact")
    puppet = lab.preloaded_puppet()
    assert_rate(daemon, puppet, 0)
    daemon.reload("rule=comm=puppet lg-sample=lots", said="the configuration is unchanged")
    assert_rate(daemon, puppet, 0)
    assert_rate(daemon, lab.preloaded_puppet(), 0)


def test_record_off_and_on_again(lab, daemon):
    """When a process is recorded again, its earlier live memory is unknown, as with attach; later allocations are
    recorded."""
    daemon.reload("exact=true")
    puppet = lab.preloaded_puppet(env=EXACT)
    puppet.ask("keep 1000 100")
    daemon.wait_recorded(puppet.pid)
    daemon.reload("exact=true", "rule=comm=puppet record=off")
    assert daemon.processes() == {}
    puppet.ask("drop")
    puppet.ask("keep 1000 100")
    daemon.reload("exact=true")
    assert daemon.wait_recorded(puppet.pid)["live_objects"] == 0
    puppet.ask("keep 1000 100")
    assert daemon.processes()[puppet.pid]["live_objects"] == 1000


def test_processes_that_run_already(lab, start_daemon):
    """Rules of the command line apply to running processes, too."""
    exact, private, other = (lab.preloaded_puppet(name) for name in ("exact", "private", "other"))
    daemon = start_daemon("--budget", "0", "--lg-sample", "15", "--rule", "comm=exact exact", "--rule",
                          "comm=private record=off", losses_allowed=("beginning",))
    assert_rate(daemon, exact, 0)
    assert_rate(daemon, other, 15)
    assert set(daemon.processes()) == {exact.pid, other.pid}
    private.ask("churn 100000 1024")
    assert set(daemon.processes()) == {exact.pid, other.pid}


def test_record_off(lab, start_daemon):
    """Such a process appears nowhere and costs nothing, while its neighbour is recorded; the same after a restart."""
    daemon = start_daemon("--exact", "--dump-at-exit", "always", "--rule", "comm=private* record=off")
    private = lab.preloaded_puppet("private", env=EXACT)
    public = lab.preloaded_puppet(env=EXACT)
    public.ask("keep 1000 100")
    daemon.wait_recorded(public.pid)
    private.ask("keep 1000 100")
    assert set(daemon.processes()) == {public.pid}
    assert daemon.get(f"/pid/{private.pid}/heap").status == 404
    daemon.restart()
    private.ask("keep 1000 100")
    assert set(daemon.processes()) == {public.pid}
    public.ask("keep 1000 100")
    private.ends()
    public.ends()
    daemon.wait_ended(public.pid)
    assert [entry["pid"] for entry in daemon.ended()] == [public.pid]
    assert kept(daemon.only_dump(public.pid, "f")) == 2000
    assert daemon.dumps(private.pid) == []


def test_rules_come_before_words(lab, start_daemon):
    """A daemon that goes on with a recording says nothing of a process that its new rules leave alone."""
    daemon = start_daemon("--exact")
    puppets = {name: lab.preloaded_puppet(name, env=EXACT) for name in ("private", "public")}
    for puppet in puppets.values():
        daemon.wait_recorded(puppet.pid)
    daemon.stop(signal.SIGTERM)
    for puppet in puppets.values():
        lab.attach(puppet.pid)
    daemon.start("--rule", "comm=private record=off")
    said = daemon.wait_said(r"^heaptap: process (\d+) \(\w+\) is also recorded by heaptap process \d+, ")
    daemon.wait_said(r"^heaptap: took over a recording of \d+ process(es)?$")
    assert int(said.group(1)) == puppets["public"].pid
    assert [line for line in daemon.process.lines() if f"process {puppets['private'].pid} " in line] == []
    assert set(daemon.processes()) == {puppets["public"].pid}
    daemon.stop(signal.SIGINT)


def test_left_alone_and_then_another_program(lab, start_daemon):
    """A rule ignores a process; its next program is recorded under the same PID."""
    daemon = start_daemon("--exact", "--dump-at-exit", "always", "--rule", "comm=left* record=off")
    process = lab.preloaded_puppet("left_alone", env=EXACT)
    process.ask("keep 3 1000")
    process.tell(f"exec {lab.copy('puppet', 'after')}")
    process.answer()
    process.ask("keep 5 1000")
    assert daemon.wait_recorded(process.pid)["command"] == "after"
    assert daemon.get(f"/pid/{process.pid}/heap").status == 200
    process.ends()
    daemon.wait_ended(process.pid)
    assert [(dump.prefix, dump.kind) for dump in daemon.dumps(process.pid)] == [("after", "f")]
    assert kept(daemon.only_dump(process.pid)) == 5
