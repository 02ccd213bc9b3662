# SPDX-License-Identifier: Apache-2.0
"""How another libjemalloc.so.2 in the process treats its options, from each of their sources: heaptap keeps it quiet
while heaptap is the allocator, and does not interfere while jemalloc is.
"""

import os
import re

import pytest

from allocators import JEMALLOC
from harness import LIBRARY, target

EVERYTHING = ("prof:true,prof_final:true,prof_leak:true,prof_gdump:true,lg_prof_sample:0,lg_prof_interval:40,"
              "stats_interval:1000000000")

# Static thread-local storage for libraries that are loaded later: libjemalloc needs 3 KiB.
ROOM = {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=16384"}
QUIET = {"opt.prof": "false", "opt.prof_final": "false", "opt.prof_leak": "false", "opt.prof_leak_error": "false",
         "opt.prof_gdump": "false", "opt.stats_print": "false", "opt.confirm_conf": "false",
         "opt.abort_conf": "false", "opt.background_thread": "false", "opt.lg_prof_interval": "-1",
         "opt.stats_interval": "-1"}
pytestmark = pytest.mark.without_bpf


def options_of(lab, program, *wrapper, env):
    """{name: value}: options of the other jemalloc, as printed by the program."""
    return read_options(start(lab, program, *wrapper, env=env))


def start(lab, program, *wrapper, env):
    process = lab.program(*wrapper, target(program), env=dict(ROOM, **env))
    process.ends()
    return process


def read_options(process):
    return dict(line.split(" ", 1) for line in process.stdout().splitlines())


def assert_quiet(lab, options):
    home = options.pop("HOME")
    assert home == lab.folder, "secure_getenv of another name is libc's"
    assert options == QUIET


# Linked with the program, and loaded later.
@pytest.mark.parametrize("program", ("other_jemalloc_linked", "other_jemalloc"))
def test_heaptap_begins_first(lab, program):
    order = ["libheaptap.so", "libjemalloc.so.2"]
    process = start(lab, program, env={"MALLOC_CONF": EVERYTHING, "LD_PRELOAD": LIBRARY, "LD_DEBUG": "files"})
    assert_quiet(lab, read_options(process))
    constructed = [os.path.basename(path) for path in re.findall(r"calling init: (\S+)", process.stderr())]
    assert [name for name in constructed if name in order] == order


def test_without_heaptap_it_obeys(lab):
    """Without heaptap, the same options take effect."""
    options = options_of(lab, "other_jemalloc", env={"MALLOC_CONF": EVERYTHING})
    assert (options["opt.prof"], options["opt.prof_final"]) == ("true", "true")
    assert options["opt.lg_prof_interval"] == "40"


def test_the_system_wide_link(lab):
    """/etc/malloc.conf, in a mount namespace that has one."""
    etc = lab.path("etc")
    os.mkdir(etc)
    os.symlink(EVERYTHING, os.path.join(etc, "malloc.conf"))
    wrapper = ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc && exec env $HEAPTAP_TEST_PRELOAD "$@"', etc)
    options = options_of(lab, "other_jemalloc_linked", *wrapper, env={"HEAPTAP_TEST_PRELOAD": "A=b"})
    assert options["opt.prof"] == "true", "the link counts without heaptap"
    assert_quiet(lab, options_of(lab, "other_jemalloc_linked", *wrapper,
                                 env={"HEAPTAP_TEST_PRELOAD": f"LD_PRELOAD={LIBRARY}"}))


def test_secure_execution(lab):
    """AT_SECURE (real and effective user differ): the environment is ignored."""
    options = options_of(lab, "environment_static", "setpriv", "--ruid=65534", env={"MALLOC_CONF": EVERYTHING})
    assert options == {"HOME": "is not told"}
    assert options_of(lab, "environment_static", env={}) == {"HOME": lab.folder}


def assert_its_own_dump(lab, process):
    process.ends()
    (dump,) = lab.dumps()
    assert dump.read().total.objects >= 50
    os.unlink(dump.path)


def test_where_it_is_the_allocator_it_keeps_its_options(lab):
    """Linked into the program, or preloaded before heaptap: heaptap is unused, and does not interfere."""
    env = {"MALLOC_CONF": "prof:true,prof_final:true,lg_prof_sample:0,prof_prefix:its"}
    assert_its_own_dump(lab, lab.program(target("jemalloc_example_static"), env=dict(env, LD_PRELOAD=LIBRARY)))
    both = dict(env, LD_PRELOAD=f"{JEMALLOC} {LIBRARY}")
    assert_its_own_dump(lab, lab.program(target("jemalloc_example"), env=both))
