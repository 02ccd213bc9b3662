# SPDX-License-Identifier: Apache-2.0
"""Debug information that is not in the program itself, or not readable: beside the program, split, compressed."""

import gzip
import os
import re
import subprocess

import pytest

from daemons import EXACT
from harness import wait_until

SOURCE = """
#include <stdlib.h>
static void *volatile kept[50];
static inline __attribute__((always_inline)) void grab(int at) {
  kept[at] = malloc(1000); }
__attribute__((noinline)) void fill_table(void) {
  for (int i = 0; i < 50; i++) grab(i); }
int main(void) {
  fill_table();
  return 0; }
"""
WHOLE = ("grab table.c:5 (inlined)", "fill_table table.c:7", "main table.c:9")


def sh(lab, command):
    subprocess.run(["sh", "-ec", command], cwd=lab.path("place"), check=True)


@pytest.fixture
def place(lab):
    os.mkdir(lab.path("place"))
    with open(lab.path("place/table.c"), "w", encoding="ascii") as file:
        file.write(SOURCE)


def report(lab):
    """What a report of the program says and shows."""
    lab.heaptap("run", "--exact", "--", lab.path("place/prog")).ends()
    session = lab.heaptap("report", lab.only_dump().path)
    session.records = False
    session.ends()
    return session.stderr(), session.stdout()


STRIP = "objcopy --only-keep-debug prog prog.debug; strip --strip-all prog; objcopy --add-gnu-debuglink=prog.debug prog; "


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("flags", ("", "-Wl,--build-id=none"), ids=("build-id", "checksum"))
@pytest.mark.parametrize("where", ("", "mkdir .debug; mv prog.debug .debug"), ids=("beside", "in .debug"))
def test_a_debug_file_beside_the_program(lab, flags, where):
    sh(lab, f"gcc -O2 -g {flags} -o prog table.c; {STRIP} {where}")
    messages, text = report(lab)
    assert messages == "" and all(line in text for line in WHOLE)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("other", (
    "echo >> prog.debug",  # another checksum
    "gcc -O2 -g -Dfill_table=other_table -o prog.debug table.c",
    "chown 12345 prog.debug",  # of a user who owns neither the program nor the machine
    "ln prog prog.debug -f",
    "rm prog.debug; mkfifo prog.debug",
))
def test_another_file_beside_the_program(lab, other):
    sh(lab, f"gcc -O2 -g -Wl,--build-id=none -o prog table.c; {STRIP} {other}")
    _, text = report(lab)
    assert "prog+0x" in text and not any(name in text for name in ("grab", "fill_table", "other_table", "table.c"))


@pytest.mark.usefixtures("place")
def test_another_build_beside_the_program(lab):
    sh(lab, f"gcc -O2 -g -o prog table.c; {STRIP} gcc -O2 -g -Dfill_table=other_table -o prog.debug table.c")
    _, text = report(lab)
    assert "prog+0x" in text and "other_table" not in text


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("version", (4, 5))
@pytest.mark.parametrize("compiler", ("gcc", "clang"))
def test_split(lab, compiler, version):
    """The line of a skeleton unit would be that of the inlined function."""
    sh(lab, f"{compiler} -O2 -g -gdwarf-{version} -gsplit-dwarf -c table.c; {compiler} -o prog table.o; ls *.dwo")
    messages, text = report(lab)
    assert re.fullmatch("heaptap: no lines and no inlined functions where debug information is split .*/prog\n", messages)
    assert "fill_table\n" in text and "main\n" in text and "table.c" not in text


@pytest.mark.usefixtures("place")
def test_the_daemon_says_what_is_missing(lab, start_daemon):
    """On its page, and in the profiles that it gives other tools."""
    daemon = start_daemon("--exact")
    sh(lab, "sed 's/return 0/getchar()/' table.c > waits.c; sed -i '1i #include <stdio.h>' waits.c;"
            "gcc -O2 -g -gsplit-dwarf -c waits.c; gcc -o prog waits.o")
    program = lab.preloaded(lab.path("place/prog"), env=EXACT, talks=True)
    daemon.wait_recorded(program.pid)
    words = "heaptap: no lines and no inlined functions where debug information is split into .dwo or .dwp files, which are not read: "
    wait_until(lambda: b";fill_table" in daemon.get(f"/pid/{program.pid}/collapsed").body, "it has allocated")
    for path in ("profile.json", "heap?format=pprof", "jeprof"):
        body = daemon.get(f"/pid/{program.pid}/{path}").body
        if path.endswith("pprof"):
            body = gzip.decompress(body)
        assert f"{words}{lab.path('place/prog')}".encode() in body, path


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("kind", ("zlib", "zlib-gnu", "zstd"))
@pytest.mark.parametrize("separate", (False, True))
def test_compressed(lab, kind, separate):
    sh(lab, f"gcc -O2 -g -o prog table.c; objcopy --compress-debug-sections={kind} prog" + (f"; {STRIP}" if separate else ""))
    messages, text = report(lab)
    if kind == "zstd" and messages:  # a new libdw reads it
        assert re.fullmatch("heaptap: no lines .* compressed with zstd, which this libdw cannot read: .*/prog\n", messages)
        assert "fill_table\n" in text and "table.c" not in text
    else:
        assert messages == "" and all(line in text for line in WHOLE)


# What two files have in common; dwz moves it to a third one.
COMMON = "".join(f"struct part{number} {{ int first, second, third; char name[{number}]; }} part{number};\n"
                 for number in range(1, 40))


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("other, is_found", (
    ("", True),
    ("mkdir .debug; mv prog.debug .debug", True),
    ("chown 12345 shared.debug", False),  # of a user who owns neither the program nor the machine
    ("sed -i 's/GNU\\x0/&x/' shared.debug", False),  # of another build
    ("rm shared.debug; mkfifo shared.debug", False),
))
def test_shared_debug_information(lab, other, is_found):
    """The names of the functions come from what is shared."""
    with open(lab.path("place/table.c"), "a", encoding="ascii") as file:
        file.write(COMMON)
    sh(lab, "sed 's/int main/int other/' table.c > other.c; gcc -O2 -g -shared -fPIC -o other.so other.c;"
            f"gcc -O2 -g -o prog table.c; {STRIP} dwz -m $PWD/shared.debug -M $PWD/shared.debug prog.debug other.so;"
            f"readelf -SW prog.debug | grep -q gnu_debugaltlink; {other}")
    _, text = report(lab)
    assert all(line in text for line in WHOLE) == is_found
