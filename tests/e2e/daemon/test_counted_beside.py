# SPDX-License-Identifier: Apache-2.0
"""A daemon that records the machine gets each sample of a program that `heaptap run --exact` records too: while
somebody else listens, the program counts nothing itself.
"""

import pytest

from areas import areas, counted
from symbols import kept

DAEMON = ["--exact"]


@pytest.mark.usefixtures("daemon")
def test_a_daemon_gets_each_sample(lab):
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 20000 100")
    session.ask("churn 20000 100")
    assert len(areas(session.target_pid)) == 1
    assert counted(session.target_pid) == 0
    session.ends()
    assert kept(lab.only_dump(session.target_pid, "f")) == 20000


def test_a_daemon_gives_no_areas(lab, daemon):
    puppet = lab.preloaded_puppet()
    daemon.wait_recorded(puppet.target_pid)
    puppet.ask("keep 5000 100")
    assert areas(puppet.target_pid) == []
    puppet.ends()
