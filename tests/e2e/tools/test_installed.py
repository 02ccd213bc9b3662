# SPDX-License-Identifier: Apache-2.0
"""The files of `make install`: enough to build a program for heaptap, and a unit that systemd accepts.
"""

import os
import re
import subprocess

import pytest

from harness import HEAPTAP, PATIENCE_SECONDS, ROOT

pytestmark = pytest.mark.without_bpf


def install(folder):
    """Runs `make install`; returns the prefix in the folder."""
    subprocess.run(["make", "-s", "-C", ROOT, "install", f"DESTDIR={folder}", "PREFIX=/usr"], check=True,
                   capture_output=True, timeout=PATIENCE_SECONDS)
    return os.path.join(folder, "usr")


def command(lab, *words, **options):
    process = lab.program(*words, **options)
    assert process.wait() == 0, process.stdout() + process.stderr()
    return process.stdout()


def test_pkg_config(lab):
    """pkg-config's output is enough to build a program with the shared or the static library."""
    prefix = lab.path("prefix")
    command(lab, "make", "-s", "-C", ROOT, "install", f"PREFIX={prefix}")
    flags = command(lab, "pkg-config", "--cflags", "--libs", "heaptap",
                         env={"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}).split()
    source = os.path.join(ROOT, "tests", "targets", "jemalloc_example.c")
    command(lab, "gcc", "-O1", "-Wall", "-Werror", "-Wno-unused-result", source, "-o", "example", *flags)
    assert f"{prefix}/lib/heaptap/libheaptap.so" in command(lab, "ldd", "./example")
    assert command(lab, "./example", "sizes").split()[:3] == ["8", "16", "32"]
    with open(lab.path("knows.cc"), "w", encoding="ascii") as file:
        file.write('#include <heaptap/heaptap.h>\n'
                   'int main() { return heaptap_control.magic == HEAPTAP_CONTROL_MAGIC ? 0 : 1; }\n')
    command(lab, "g++", "-Wall", "-Werror", "knows.cc", "-o", "knows", *flags)
    command(lab, "./knows")
    command(lab, "gcc", "-static", "-Wno-unused-result", source, "-o", "static", *flags[:2],
                 f"{prefix}/lib/heaptap/libheaptap.a")
    assert command(lab, "./static", "sizes").split()[:3] == ["8", "16", "32"]


def test_heaps_and_linked_guests(lab):
    """The same for pools (heaptap-sample) and for programs with an allocator of their own (heaptap-guest), in both languages."""
    prefix = lab.path("prefix")
    command(lab, "make", "-s", "-C", ROOT, "install", f"PREFIX={prefix}")
    def flags(package):
        return command(lab, "pkg-config", "--cflags", "--libs", package,
                       env={"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}).split()
    heaps = os.path.join(ROOT, "tests", "targets", "heaps")
    for standard in ("c99", "gnu17"):
        command(lab, "gcc", f"-std={standard}", "-D_GNU_SOURCE", "-O0", "-Wall", "-Werror", f"{heaps}/pool.c", "-o", "pool", "-pthread",
                *flags("heaptap-sample"))
        assert command(lab, "./pool", "10", "10") == "done\n"
    command(lab, "g++", "-std=c++11", "-Wall", "-Werror", f"{heaps}/buffers.cc", "-o", "buffers", *flags("heaptap-sample"))
    assert command(lab, "./buffers", "1", "1", "1") == "done\n"
    for how in ("-static", "-pie"):
        command(lab, "gcc", how, f"{heaps}/doors.c", "-o", "doors", *flags("heaptap-guest"))
        command(lab, "./doors", "10")
    # All of them in one program.
    command(lab, "gcc", "-static", f"{heaps}/pool.c", "-o", "all", *flags("heaptap-sample"), *flags("heaptap-guest"))
    assert command(lab, "./all", "10", "10") == "done\n"
    command(lab, "gcc", "-static", f"{heaps}/pool.c", "-o", "full", *flags("heaptap-sample"),
            f"{prefix}/lib/heaptap/libheaptap.a")
    assert command(lab, "./full", "10", "10") == "done\n"


def test_man_pages(lab):
    """Each page is there, in its section, and names the folder that it was installed to."""
    pages = os.listdir(os.path.join(ROOT, "build/man"))
    installed = install(lab.folder)
    for page in pages:
        with open(os.path.join(installed, f"share/man/man{page[-1]}", page), encoding="utf-8") as file:
            assert "/usr/local/" not in file.read(), page
    assert {"heaptap.1", "heaptap-daemon.8", "libheaptap.3"} <= set(pages)


def test_systemd_accepts_it(lab):
    installed = install(lab.folder)
    unit = os.path.join(installed, "share/heaptap/systemd/heaptap.service")
    with open(unit, encoding="utf-8") as file:
        text = file.read()
    assert "@" not in re.sub(r"(?m)^#.*|@[a-z-]+(?= |$)", "", text), "something was not filled in"
    # systemd checks that the unit's program exists.
    here = lab.path("heaptap.service")
    with open(here, "w", encoding="utf-8") as file:
        file.write(text.replace("ExecStart=/usr/bin/heaptap", f"ExecStart={HEAPTAP}"))
    verified = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True,
                              timeout=PATIENCE_SECONDS, check=False)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


def shown_defaults():
    """{option: value} of the defaults in heaptap.conf: the lines that are commented out, without examples and without
    options that are off by default. And a list of all lines that are commented out."""
    defaults, lines = {}, []
    remark = ""
    with open(os.path.join(ROOT, "scripts/heaptap.conf"), encoding="utf-8") as file:
        for line in file:
            option = re.fullmatch(r"#([a-z-]+)=(.*)\n", line)
            if option is None:
                remark = line if line.startswith("# ") else remark if line == "#\n" else ""
                continue
            lines.append(line[1:].rstrip("\n"))
            if not re.search(r"For example:|Default: no\.", remark):
                defaults[option[1]] = option[2].strip('"')
    return defaults, lines


def help_defaults():
    """{option: value} of the defaults in `heaptap daemon --help`."""
    text = subprocess.run([HEAPTAP, "daemon", "--help"], capture_output=True, text=True, check=True).stdout
    options = re.split(r"\n  --", re.sub(r"\n {10,}", " ", text))[1:]
    found = {}
    for option in options:
        default = (re.search(r"\(default: ([^,;:) ]+)", option) or
                   re.search(r"(?:^|\W)(\w+)(?:: [^;]*)? \(default\)", option))
        if default:
            found[re.match(r"[a-z-]+", option)[0]] = default[1]
    return found


def test_the_example_configuration_is_all_comments(lab):
    with open(os.path.join(install(lab.folder), "share/heaptap/heaptap.conf"), encoding="utf-8") as file:
        assert [line for line in file if line.strip() and not line.startswith("#")] == []


def test_the_example_configuration_shows_the_defaults():
    shown = shown_defaults()[0]
    # The help describes these without a value.
    assert [shown.pop(name) for name in ("exact", "max-live", "max-contexts")] == ["false", "0", "0"]
    said = help_defaults()
    assert {name: said.get(name) for name in shown} == shown


@pytest.mark.parametrize("line", shown_defaults()[1])
def test_the_daemon_takes_each_line_of_the_example_configuration(lab, line):
    """Tested with --end and without a recording."""
    with open(lab.path("heaptap.conf"), "w", encoding="utf-8") as file:
        file.write(line.replace('group="heaptap"', 'group="root"') + "\n")  # one that this machine has
    pins = f"/sys/fs/bpf/heaptap-test-{os.getpid()}"
    end = lab.heaptap("daemon", "--end", "--config", lab.path("heaptap.conf"), "--pin-dir", pins)
    end.records = False
    end.ends()
    assert end.lines() == [f"heaptap: there is no recording in {pins}"]
