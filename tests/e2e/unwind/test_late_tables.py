# SPDX-License-Identifier: Apache-2.0
"""Late unwind tables: the samples are kept, and their stacks are whole, or marked and counted.

Recording is exact; error bounds: none.
"""

import collections
import os
import shutil
import signal

import pytest

import control
import symbols
from harness import LIBRARY, TIME_SCALE, target, wait_until
from loader import (DEEP, LEFT, RIGHT, assert_called, call, end, loader, notices_every_mapping, offset_of, open_plugin, paths,
                    plugin_path)
from stack_ends import NO_ROOM, counts_by_end


def test_a_plugin_at_work_at_once(lab):
    """The plugin allocates in its constructor and right after dlopen, before its table can be loaded."""
    session = loader(lab)
    for path, side in ((LEFT, "left"), (RIGHT, "right")):
        open_plugin(session, path)
        call(session, f"{side}_enter", 1000)
    dump = end(lab, session)
    assert dump.warnings == []
    for side in ("left", "right"):
        assert assert_called(dump, side, 1000) == 1


def warnings_of_the_process(dump):
    """Without lost mapping events: those of the whole machine fill the rings while heaptap is stopped, so other work on the
    machine decides whether some are lost."""
    return [text for text in dump.warnings if "mapping events lost" not in text]


ATTEMPTS = 5


def assert_whole_though_heaptap_was_stopped(lab, path, side, count):
    """heaptap is stopped while the program opens a plugin, calls it, and ends. Mapping events of the whole
    machine are lost if there are many meanwhile. The plugin's own may be among them, and then nobody knows the plugin any
    more, so an attempt with lost events does not count."""
    for _ in range(ATTEMPTS):
        session = loader(lab)
        session.signal(signal.SIGSTOP)
        open_plugin(session, path)
        call(session, f"{side}_enter", count)
        session.tell("close")
        session.popen.stdin.close()
        session.signal(signal.SIGCONT)
        dump = end(lab, session)
        if warnings_of_the_process(dump) == dump.warnings:
            break
    assert dump.warnings == []
    assert_called(dump, side, count)


@pytest.mark.whole_machine
def test_a_stopped_heaptap(lab):
    """heaptap is stopped while a plugin is loaded, works, and disappears with its process: the stacks wait in the kernel,
    and heaptap opens the file by name."""
    assert_whole_though_heaptap_was_stopped(lab, LEFT, "left", 500)


DEEP_PATH = ("deep_inner", "deep_middle", "deep_outer", "main")


@pytest.mark.whole_machine
def test_a_child_that_its_parent_has_reaped(lab):
    """heaptap is stopped while a shell starts a new program, of which nothing is left in /proc afterwards. Not exact, since
    the program would wait for its tables. An attempt with lost mapping events does not count, as above."""
    program = lab.path("deep_frames")
    shutil.copy(target("deep_frames"), program)
    script = 'echo $$; read line; "$@" & echo $!; wait $!; echo ended with $?; read line'
    for _ in range(ATTEMPTS):
        session = lab.heaptap("run", "--lg-sample", 4, "--", "sh", "-c", script, "sh", program, "50", talks=True)
        session.answer()
        session.signal(signal.SIGSTOP)
        session.tell("go")
        pid = int(session.answer())
        assert session.answer() == "ended with 0"
        assert not os.path.exists(f"/proc/{pid}")
        session.signal(signal.SIGCONT)
        session.tell("end")
        session.ends()
        dump = lab.only_dump(pid=pid, kind="f")
        if warnings_of_the_process(dump) == dump.warnings:
            break
    assert dump.warnings == []
    found = paths(dump, "deep_inner")
    assert {(names[:4], names[-1]) for names in found} == {(DEEP_PATH, "_start")}


def start_while_heaptap_is_stopped(lab, *command):
    """Starts a session whose process becomes the command while heaptap is stopped; returns its PID."""
    session = lab.heaptap("run", "--exact", "--", "sh", "-c", 'echo $$; read line; exec "$@"', "sh", *command, talks=True)
    pid = int(session.answer())
    session.signal(signal.SIGSTOP)
    session.tell("go")
    return session, pid


def tables_awaited(pid, program):
    """How often a thread of the process has begun to wait for unwind tables; 0 as long as it does not run the program."""
    try:
        return control.waits(pid, LIBRARY).table_answers if os.readlink(f"/proc/{pid}/exe") == program else 0
    except AssertionError:  # the library is not mapped yet
        return 0


def has_ended(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("wrapper", ((), ("env",), ("nice", "-n", "1")), ids=("alone", "env", "nice"))
def test_a_program_waits_for_its_tables(lab, wrapper):
    """The program is new, and its stacks are larger than the copies that heaptap makes of many stacks."""
    program = lab.path("deep_frames")
    shutil.copy(target("deep_frames"), program)
    session, pid = start_while_heaptap_is_stopped(lab, *wrapper, program, "5000")
    # An emulated machine is so slow that the program has stopped waiting before this could see it.
    if not wrapper and TIME_SCALE == 1:
        wait_until(lambda: tables_awaited(pid, program) != 0, "the program waits")
    session.signal(signal.SIGCONT)
    session.ends()
    dump = lab.only_dump(kind="f")
    assert warnings_of_the_process(dump) == []
    found = paths(dump, "deep_inner")
    assert {(names[:4], names[-1]) for names in found} == {(DEEP_PATH, "_start")}
    assert sum(found.values()) == 5000


def test_a_plugin_waits_for_its_tables(lab):
    """The plugin allocates in its constructor, on a stack larger than the copies of many, while heaptap is stopped."""
    session = loader(lab)
    session.signal(signal.SIGSTOP)
    copies = [lab.path(f"{number}.so") for number in range(3)]
    for path in copies:
        shutil.copy(DEEP, path)
    before = tables_awaited(session.target_pid, target("loader"))
    session.tell(f"open {copies[0]}")
    wait_until(lambda: tables_awaited(session.target_pid, target("loader")) != before, "the program waits")
    session.signal(signal.SIGCONT)
    assert session.answer().startswith("opened ")
    call(session, "deep_enter", 3000)
    for path in copies[1:]:
        open_plugin(session, path)
        call(session, "deep_enter", 3000)
    dump = end(lab, session)
    assert warnings_of_the_process(dump) == []
    assert_called(dump, "deep", 9000)


def test_a_program_does_not_wait_for_ever(lab):
    """heaptap stays stopped: the program goes on without tables, and ends."""
    session, pid = start_while_heaptap_is_stopped(lab, target("deep_frames"), "10")
    wait_until(lambda: has_ended(pid), "the program ends")
    session.signal(signal.SIGCONT)
    session.ends()
    assert warnings_of_the_process(lab.only_dump(kind="f")) == []


@pytest.mark.whole_machine
def test_deep_stacks_while_heaptap_is_stopped(lab):
    """With few samples, whole stacks are copied."""
    assert_whole_though_heaptap_was_stopped(lab, DEEP, "deep", 50)


def assert_whole_unless_locked(session, dump):
    """While another thread locks the kernel's list of mappings, stacks are treated like those with late tables, and there
    may be too many of them."""
    ends = counts_by_end(dump)
    assert all(NO_ROOM in end for end in ends), ends
    (entry,) = session.books()
    assert sum(ends.values()) < entry["samples_allocated"] / 20


def assert_each_has_its_own_names(dump, caller, objects):
    """Of the two plugins, each has allocated so many objects below the caller, in functions of its own only. On kernels that
    do not tell walks of changed mappings, their stacks are not told apart."""
    allocated = {"left": 0, "right": 0}
    for stack in dump.stacks:
        names = symbols.names(dump, stack)
        if caller not in names or "main" not in names:
            continue
        sides = {name.split("_")[0] for name in names[: names.index(caller)]}
        assert len(sides) == 1, names
        allocated[sides.pop()] += stack.total.objects
    if notices_every_mapping():
        assert allocated == {"left": objects, "right": objects}


def test_two_plugins_at_one_address(lab):
    """The plugins differ only in the size of their frames. Threads allocate all the time."""
    session = loader(lab)
    assert int(session.ask(f"swap {LEFT} {RIGHT} 300").split()[1]) > 200
    dump = end(lab, session)
    assert_whole_unless_locked(session, dump)
    for stack in dump.stacks:
        names = symbols.names(dump, stack)
        if names == [None]:
            continue  # the placeholder for what is not known
        assert (names[-1] == "_start") == ("main" in names), names
        if any(name and name.endswith("_middle") for name in names):
            assert "main" in names
    assert_each_has_its_own_names(dump, "call_plugin", 450)


def test_two_files_mapped_over_one_another(lab):
    """No sample is taken between the two, so only the mapping shows that the code has changed. On kernels that do not tell
    walks, samples are kept, and the known part of their stacks is right."""
    assert offset_of(LEFT, "left_enter") == offset_of(RIGHT, "right_enter")
    session = loader(lab)
    offset = offset_of(LEFT, "left_enter")
    assert session.ask(f"remap {LEFT} {RIGHT} {offset} 200") == "remapped"
    dump = end(lab, session)
    # A stack that waited for its table is a stack of its own.
    found = collections.Counter()
    for stack in dump.stacks:
        names = tuple(symbols.names(dump, stack))
        if names[0] and names[0].endswith("_inner"):
            found[names] += stack.total.objects
    assert sum(found.values()) == 200
    whole = [names for names in found if names[-1] == "_start"]
    assert {names[3:5] for names in whole} == {("call_mapped", "main")}
    assert_each_has_its_own_names(dump, "call_mapped", 100)
    if notices_every_mapping():
        assert dump.warnings == []
        assert len(found) == 2


def test_mapped_and_unmapped_all_the_time(lab):
    """Threads allocate in permanent code while another thread maps and unmaps code."""
    session = loader(lab)
    assert session.ask(f"churn {LEFT} 2000") == "churned"
    dump = end(lab, session)
    assert_whole_unless_locked(session, dump)
    found = [symbols.names(dump, stack) for stack in dump.stacks]
    paths = {tuple(names[:2]) for names in found if "stable_body" in names}
    assert paths == {("stable_allocate", "stable_body")}


def test_thousands_of_mappings(lab):
    """One file is mapped 1000 times, and called in each mapping."""
    session = loader(lab)
    assert session.ask(f"maps {LEFT} {offset_of(LEFT, 'left_enter')} 1000") == "mapped 1000"
    dump = end(lab, session)
    assert dump.warnings == []
    found = paths(dump, "call_mapped")
    assert {names[:5] for names in found} == {(*plugin_path("left", 3), "call_mapped", "main")}
    assert sum(found.values()) == 1000
