# SPDX-License-Identifier: Apache-2.0
"""The programs whose call paths are compared: Debian's, unmodified, and those in tests/differential/targets/.

Each does the same in every run: its input is made here, and it uses neither the time nor random numbers.
"""

import functools
import os
import random
import re
import shutil
import subprocess

import harness
import paths
import programs
import symbols

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scripts")
TARGETS = os.path.join(harness.BUILD, "tests", "differential")


def target(name):
    return os.path.join(TARGETS, name)


def by_name(frame):
    """Compares functions instead of addresses, for programs that are linked twice."""
    function = symbols.file(frame.module).function_at(frame.offset - 1) if frame.module.startswith("/") else None
    return paths.Frame(function, 0) if function else frame


@functools.lru_cache(maxsize=None)
def functions_of_library():
    listing = subprocess.run(["nm", "--defined-only", os.path.join(harness.BUILD, "libheaptap.a")],
                             stdout=subprocess.PIPE, text=True, check=True).stdout
    return set(re.findall(r"^[0-9a-f]+ [tTwW] (\S+)", listing, re.MULTILINE))


def is_linked_allocators(frame):
    return paths.is_allocators(frame) or by_name(frame).module in functions_of_library()


def one_plugin(frame):
    """Treats both plugins as one: they are mapped at the same address with different offsets, and jemalloc looks at the
    mappings only at the end."""
    if os.path.basename(frame.module).startswith("plugin_"):
        return paths.Frame("plugin", frame.offset)
    return frame


class Subject:
    """prepare: function(folder) that makes the input; command: run in that folder; stdin: a file there; environment:
    changes to it; is_small: part of test-differential-small; addresses_decide: its allocations depend on addresses
    (tables of pointers); rename, is_own: see paths.Paths.read."""

    def __init__(self, *command, prepare=None, stdin=None, environment=None, is_small=True, addresses_decide=False,
                 rename=None, is_own=paths.is_allocators):
        self.command = list(command)
        self.prepare = prepare
        self.stdin = stdin
        self.environment = {"PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0", **(environment or {})}
        self.is_small = is_small
        self.addresses_decide = addresses_decide
        self.rename = rename
        self.is_own = is_own


def copies(name):
    """Makes a prepare() that copies a file of scripts/."""
    return lambda folder: shutil.copy(os.path.join(SCRIPTS, name), folder)


def shop(folder):
    with open(os.path.join(folder, "script.sql"), "w", encoding="ascii") as file:
        file.write(programs.SQL)


def six_namespaces(folder):
    """program.cc six times in one file."""
    with open(os.path.join(SCRIPTS, "program.cc"), encoding="ascii") as file:
        text = file.read().replace("int main(", "int Main(")
    with open(os.path.join(folder, "program.cc"), "w", encoding="ascii") as file:
        file.write("".join(f"namespace n{i} {{\n{text}}}\n" for i in range(6)))


def repository(folder):
    """A git repository with 40 commits to 12 files, made by fast-import: always the same objects."""
    stream, files = [], {f"folder{i % 3}/file{i}.txt": [f"line {n} of {i}" for n in range(60)] for i in range(12)}
    names = sorted(files)
    for commit in range(40):
        message = f"Commit {commit}\n\nWhat it does, at some length: {'x' * (commit % 17)}\n"
        stream.append(f"commit refs/heads/main\nmark :{commit + 1}\n"
                      f"committer Some One <one@example.org> {1700000000 + commit * 3600} +0000\n"
                      f"data {len(message)}\n{message}")
        for step in range(3):
            name = names[(commit * 5 + step) % len(names)]
            files[name][(commit * 7 + step) % 60] = f"changed by {commit}"
            text = "\n".join(files[name]) + "\n"
            stream.append(f"M 100644 inline {name}\ndata {len(text)}\n{text}")
    run = {"cwd": folder, "env": harness.environment(folder), "check": True, "stdout": subprocess.DEVNULL}
    subprocess.run(["git", "init", "-q", "-b", "main", "."], **run)
    subprocess.run(["git", "fast-import", "--quiet"], input="\n".join(stream).encode(), **run)


# One process runs all commands. Keys are random, but of fixed size.
OPENSSL = """version -v
dgst -sha256 -sha512 noise
dgst -md5 noise
dgst -blake2b512 noise
dgst -sha3-512 -hmac secret noise
enc -aes-256-cbc -pbkdf2 -nosalt -pass pass:secret -in noise -out cipher
enc -d -aes-256-cbc -pbkdf2 -nosalt -pass pass:secret -in cipher -out plain
enc -chacha20 -K 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff -iv 00112233445566778899aabbccddeeff -in noise -out cipher
enc -base64 -in noise -out text
genpkey -algorithm ED25519 -out ed25519.pem
pkey -in ed25519.pem -pubout -text -out public
genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out ec.pem
req -x509 -new -key ec.pem -subj /CN=example.org -days 10 -out certificate.pem
x509 -in certificate.pem -text -noout -out certificate.txt
verify -CAfile certificate.pem certificate.pem
pkeyutl -sign -inkey ec.pem -in digest -out signature
kdf -keylen 32 -kdfopt digest:SHA256 -kdfopt key:00112233 -kdfopt salt:4455 -binary HKDF
asn1parse -in certificate.pem
ciphers -v ALL
prime 1000003
list -digest-algorithms
"""


def openssl(folder):
    noise(folder)
    for name, text in (("script", OPENSSL), ("digest", "d" * 32)):
        with open(os.path.join(folder, name), "w", encoding="ascii") as file:
            file.write(text)


def noise(folder):
    """A file that xz can compress by half."""
    chance = random.Random(1)
    with open(os.path.join(folder, "noise"), "wb") as file:
        file.write(bytes(chance.choice(b"abcdefghij\n") for _ in range(300000)))


SUBJECTS = {
    "free": Subject("free"),
    "ls": Subject("ls", "-laR", "/usr/lib/python3"),
    "sqlite3": Subject("sqlite3", "shop.db", ".read script.sql", prepare=shop),
    "python3": Subject("/usr/bin/python3", "-S", "benchmark.py", prepare=copies("benchmark.py"),
                       environment={"PYTHONMALLOC": "malloc", "PYTHONDONTWRITEBYTECODE": "1"}),
    "perl": Subject("perl", "script.pl", prepare=copies("script.pl")),
    "git": Subject("git", "--no-pager", "log", "--stat", "-p", "--graph", prepare=repository),
    # cc1's garbage collector has a table for each 16 MiB of address space that it touches.
    "gcc": Subject("gcc", "-O1", "-c", "sampling_law.c", "-o", "sampling_law.o", addresses_decide=True,
                   prepare=copies(os.path.join(harness.ROOT, "tests/targets/sampling_law.c"))),
    # Without optimisation, which would make more than a thousandth of the bytes depend on addresses.
    "clang": Subject("clang++", "-std=c++20", "-c", "program.cc", "-o", "program.o", addresses_decide=True,
                     prepare=six_namespaces),
    "g++": Subject("g++", "-std=c++20", "-O2", "-c", "callers.cc", "-o", "callers.o", addresses_decide=True,
                   prepare=copies(os.path.join(harness.ROOT, "tests/targets/callers.cc")), is_small=False),
    "openssl": Subject("openssl", prepare=openssl, stdin="script"),
    "xz": Subject("xz", "-k", "-6", "noise", prepare=noise),
    **{name: Subject(target(name)) for name in
       ("exceptions", "signals", "single_step", "variable_frames", "recursion", "tail_calls", "plt_stubs",
        "lazy_resolver", "noreturn", "vfork", "archive", "optimised")},
    "plugins": Subject(target("plugins"), target("plugin_first.so"), target("plugin_second.so"), rename=one_plugin),
    "static_pie": Subject(target("static/{allocator}/archive"), rename=by_name, is_own=is_linked_allocators),
}

# Those that libheaptap-guest.so can record: with an allocator that can be preloaded.
OF_GUESTS = [name for name in SUBJECTS if name != "static_pie"]
