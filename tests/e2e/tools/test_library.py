# SPDX-License-Identifier: Apache-2.0
"""The library in unusual processes."""

import pytest

from harness import LIBRARY, LONG, TIME_SCALE, target

pytestmark = pytest.mark.without_bpf

# The message about unknown options, which shows that a process has read them.
NONSENSE = {"MALLOC_CONF": "bar:foo", "HEAPTAP_CONF": "foo:bar"}
SAID = ["<jemalloc>: Invalid conf pair: bar:foo", "<heaptap>: Invalid conf pair: foo:bar"]


def test_privileged_programs_take_no_options(lab):
    """In secure execution (real and effective user differ) the environment is ignored."""
    for wrapper, lines in (((), SAID), (("setpriv", "--ruid=65534"), [])):
        process = lab.program(*wrapper, target("environment_static"), env=NONSENSE)
        process.ends()
        assert process.stderr().splitlines() == lines


def test_it_stays_when_it_is_closed(lab):
    """Blocks outlive any dlclose (-z nodelete)."""
    script = ("import _ctypes, ctypes, sys\n"
              "_ctypes.dlclose(ctypes.CDLL(sys.argv[1])._handle)\n"
              "print(sys.argv[1] in open('/proc/self/maps').read())\n")
    # The library's thread-local storage is static; a program that opens it late needs room for it.
    process = lab.program("/usr/bin/python3", "-c", script, LIBRARY,
                          env={"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=65536"})
    process.ends()
    assert process.stdout() == "True\n"


FORKS = 10000 if LONG else 300
FORK_SECONDS = 0.1 * TIME_SCALE  # generous: one takes some milliseconds


@pytest.mark.endurance
@pytest.mark.parametrize("where", ("streams", "handler"))
def test_fork_does_not_hang(lab, held, where):
    """With threads that hold libc's stream locks while they allocate; and in a signal handler that has interrupted malloc or
    fork in a single-threaded process."""
    process = lab.preloaded(target("fork_storm"), where, FORKS)
    assert process.wait(FORKS * FORK_SECONDS) == 0, process.stderr()
    held(f"forks, {where}", "no deadlock", FORKS)
