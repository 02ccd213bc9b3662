# SPDX-License-Identifier: Apache-2.0
"""The man pages agree with the program: on commands, options, exit statuses, endpoints and options of the library.
"""

import glob
import os
import re
import subprocess

import pytest

from harness import HEAPTAP, PATIENCE_SECONDS, ROOT

pytestmark = pytest.mark.without_bpf

SOURCES = os.path.join(ROOT, "scripts/man")
PAGES = sorted(name.removesuffix(".scd") for name in os.listdir(SOURCES) if re.search(r"\.\d\.scd$", name))
COMMANDS = [re.sub(r"heaptap-(.*)\.[18]", r"\1", page) for page in PAGES if re.match(r"heaptap-.*\.[18]$", page)]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def page(name):
    """The source of a page, with the recording options inserted."""
    return read(f"scripts/man/{name}.scd").replace("@RECORDING_OPTIONS@", read("scripts/man/recording_options.scd"))


def page_of(command):
    return page(f"heaptap-{command}.8" if command == "daemon" else f"heaptap-{command}.1")


def help_text(*command):
    return subprocess.run([HEAPTAP, *command, "--help"], check=True, capture_output=True, text=True,
                          timeout=PATIENCE_SECONDS).stdout


def options_of_help(text):
    """{the names of an option: the words for its value}, from a help text."""
    found = {}
    for line in re.findall(r"^  (-.*)$", text, re.MULTILINE):
        names, _, rest = line.partition("  ") if "  " in line else (line, "", "")
        names, *value = re.split(r"[ \[]", names, maxsplit=1)
        if value and re.fullmatch(r"[a-z_0-9]+(\|[a-z_0-9]+)+", value[0]):
            words = set(value[0].split("|"))
        else:
            words = set(re.findall(r"\b[A-Z_]{1,}\b", re.sub(r"Excludes:.*", "", " ".join(value))))
        found[frozenset(names.split(","))] = words
    return found


def options_of_page(text):
    """{the names of an option: the words for its value}, from the section OPTIONS of a page."""
    section = re.search(r"^# OPTIONS$(.*?)^# ", text, re.MULTILINE | re.DOTALL)
    found = {}
    for line in re.findall(r"^([^\t\n].*)\n\t", section.group(1), re.MULTILINE):
        names = frozenset(re.findall(r"(?<![\w-])--?[a-zA-Z][a-z_-]*", line.replace("*", " ")))
        value = re.sub(r"\*--?[a-zA-Z][a-z_-]*\*", "", line)
        if names:
            found[names] = set(re.findall(r"\*([a-z_0-9]+)\*", value)) or set(re.findall(r"_([A-Z]+)_", value))
    return found


def test_every_command_has_a_page():
    listed = re.findall(r"^  ([a-z]+) {2,}", help_text().partition("Subcommands:")[2], re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)
    overview = re.search(r"^# COMMANDS$(.*?)^# ", page("heaptap.1"), re.MULTILINE | re.DOTALL).group(1)
    assert sorted(re.findall(r"^\*([a-z]+)\*$", overview, re.MULTILINE)) == sorted(COMMANDS)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_options(command):
    """The page and the help text have the same options, with the same values."""
    said = options_of_help(help_text(*command.split()))
    assert len(said) > 0
    written = options_of_page(page_of(command) if command else page("heaptap.1"))
    positional = re.findall(r"^  ([A-Za-z|]+)(?: \.\.\.)? (?:REQUIRED|Excludes)", help_text(*command.split()), re.MULTILINE)
    for word in positional:
        assert word.split("|")[0] in page_of(command), f"{word} is not in the page"
    assert written == said


def test_statuses():
    status = read("userspace/cli/words/exit_status.h")
    numbers = {int(number) for number in re.findall(r"^  k\w+ = (\d+),", status, re.MULTILINE)}
    written = page("heaptap.1") + page("heaptap-run.1")
    found = {int(number) for number in re.findall(r"^\|[\[ ] \*(\d)\*$", written, re.MULTILINE)}
    assert found | {126, 127, 128} == numbers
    for number in (126, 127, 128):
        assert str(number) in page("heaptap-run.1")


def test_endpoints():
    served = set()
    for path in glob.glob(os.path.join(ROOT, "userspace/api/endpoints_*.cc")):
        served |= set(re.findall(r'\{"([a-z/_.]*)", k(?:Read|Get|Post)', read(path)))
    assert len(served) > 15
    section = re.search(r"^# HTTP$(.*?)^# ", page("heaptap-daemon.8"), re.MULTILINE | re.DOTALL).group(1)
    entries = " ".join(re.findall(r"^([^\t\n].*)\n\t", section, re.MULTILINE)).replace("*/pid/*_N_*", "*")
    assert set(re.findall(r"\*/([a-z/_.]*)\*", entries)) == served


def test_options_of_the_library():
    """The page has the options that have an effect; confirm_conf reports the others."""
    table = read("allocator/process/option_table.cc")
    table = table[table.index("kOptions[] = {"):table.index("kOptionCount")]
    entries = re.findall(r"(?:OPTION|FIELD)\(\"?(\w+)(.*)", re.sub(r"\n\s+\.", ".", table))
    effective = {name for name, rest in entries if "WithoutEffect" not in rest}
    assert "prof" in effective and "hpa" not in effective
    section = re.search(r"^# OPTIONS$(.*?)^# ", page("libheaptap.3"), re.MULTILINE | re.DOTALL).group(1)
    assert set(re.findall(r"\*(\w+):", section)) == effective


@pytest.mark.parametrize("name", PAGES)
def test_it_is_a_page(name):
    """It is built, has the usual sections, and refers only to pages that exist."""
    built = read(os.path.join("build/man", name))
    assert not re.search("@[A-Z_]+@", built), "a placeholder is left"
    for section in ("NAME", "DESCRIPTION", "SEE ALSO"):
        assert re.search(rf"^\.SH {section}$", built, re.MULTILINE), f"{name} has no {section}"
    for other, number in re.findall(r"\*((?:lib)?heaptap[a-z-]*)\*\((\d)\)", page(name)):
        assert f"{other}.{number}" in PAGES, f"{name} names {other}({number})"
