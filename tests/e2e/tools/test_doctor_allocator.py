# SPDX-License-Identifier: Apache-2.0
"""heaptap doctor -p says which allocator a process uses, and how it can be profiled."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest

import go_programs
from daemons import NOBODY
from guests import HOSTS, preload
from harness import GUEST, HEAPTAP, LIBRARY, PATIENCE_SECONDS, target, wait_until

pytestmark = pytest.mark.without_bpf


class Diagnosis:
    """What the doctor says of a process, which is the same as text and as JSON. Both run at once."""

    def __init__(self, pid, **options):
        runs = [subprocess.Popen([HEAPTAP, "doctor", "-p", str(pid), *arguments], stdout=subprocess.PIPE, text=True, **options)
                for arguments in ((), ("--json",))]
        text, data = (run.communicate(timeout=PATIENCE_SECONDS)[0] for run in runs)
        self.status = runs[0].returncode
        assert runs[1].returncode == self.status
        self.findings = {finding["subject"]: finding for finding in json.loads(data)["findings"]}
        self.process = self.findings[f"process {pid}"]
        for finding in self.findings.values():
            words = finding.get("detail") or f"{finding['missing']}; {finding['remedy']}"
            assert re.search(rf"(?m)^(ok|missing) +{re.escape(finding['subject'])} +{re.escape(words)}$", text)

    @property
    def allocator(self):
        return self.findings["allocator"]["detail"]

    @property
    def remedy(self):
        return self.findings["sampled allocator"]["remedy"]


def started(lab, *command, **options):
    """A program in its main function: it has copied a line, as `cat -` does."""
    process = lab.program(*command, talks=True, **options)
    assert process.ask("ready") == "ready"
    return process


def compiled(lab, source, *options):
    """A program of C that allocates a block and then copies lines (COPIES, which is part of the source)."""
    with open(lab.path("main.c"), "w", encoding="ascii") as file:
        file.write(source + "int main(void) { return malloc(1) == 0 || copies(); }\n")
    subprocess.run(["gcc", *options, "main.c", "-o", "main"], cwd=lab.folder, check=True)
    return lab.path("main")


COPIES = ("#include <unistd.h>\nstatic int copies(void) { char text[64]; long size; "
          "while ((size = read(0, text, sizeof text)) > 0) if (write(1, text, size) != size) return 1; return 0; }\n")


def test_the_library(lab):
    process = started(lab, "cat", "-", env={"LD_PRELOAD": LIBRARY})
    assert Diagnosis(process.pid).allocator == "heaptap"


@pytest.mark.parametrize("host", HOSTS)
def test_a_guest(lab, host):
    process = started(lab, "cat", "-", env=preload(host))
    assert re.fullmatch(rf"guest over {host} [a-z \d.]+", Diagnosis(process.pid).allocator)


@pytest.mark.parametrize("host", HOSTS)
def test_an_allocator_that_can_be_kept(lab, host):
    """The command line that is shown makes the process a guest, as it stands."""
    library = HOSTS[host]
    process = started(lab, "cat", "-", env={"LD_PRELOAD": library} if library else None)
    found = Diagnosis(process.pid)
    assert found.status == 3
    assert re.fullmatch(rf"{host} \(/\S+\)", found.allocator)
    behind = f":{library}" if library else ""
    before = f"LD_PRELOAD={library} " if library else ""
    assert found.remedy == (f"to keep {host}: {before}heaptap run --guest -- cat -, or "
                            f"LD_PRELOAD={GUEST}{behind} cat - and then heaptap attach; "
                            f"for heaptap's own allocator: LD_PRELOAD={LIBRARY}{behind}")
    shown = re.search(", or (LD_PRELOAD=.*) and then heaptap attach", found.remedy).group(1)
    again = started(lab, "sh", "-c", f"export {shown.replace(' cat', '; exec cat')}")
    assert "guest over" in Diagnosis(again.pid).allocator, "the command makes a guest"


def test_an_allocator_that_is_linked(lab):
    """redis is linked with jemalloc, and writes a title over its arguments."""
    socket = lab.path("redis.sock")
    redis = lab.program("redis-server", "--port", "0", "--unixsocket", socket, "--save", "")
    wait_until(lambda: os.path.exists(socket), "redis runs")
    found = Diagnosis(redis.pid)
    assert re.fullmatch(r"jemalloc \(/\S+/libjemalloc\.so\.2\)", found.allocator)
    assert f"LD_PRELOAD={GUEST} redis-server ..." in found.remedy


def test_preloaded_in_the_wrong_order(lab):
    process = started(lab, "cat", "-", env={"LD_PRELOAD": f"{HOSTS['jemalloc']} {GUEST}"})
    found = Diagnosis(process.pid)
    assert found.status == 3
    assert found.findings["sampled allocator"]["missing"] == f"{GUEST} takes no samples"
    assert found.allocator.startswith("jemalloc (")
    assert f"LD_PRELOAD={GUEST}:{HOSTS['jemalloc']} cat" in found.remedy


def test_both_libraries(lab):
    for order in (f"{GUEST} {LIBRARY}", f"{LIBRARY} {GUEST}"):
        process = started(lab, "cat", "-", env={"LD_PRELOAD": order})
        found = Diagnosis(process.pid)
        assert found.allocator == "heaptap"
        assert found.findings["sampled allocator"]["detail"] == (
            f"{GUEST} takes no samples, because the other library does")


def test_a_static_program(lab):
    process = lab.program(target("environment_static"))
    process.wait()
    found = Diagnosis(started(lab, compiled(lab, "#include <stdlib.h>\n" + COPIES, "-static")).pid)
    assert found.status == 3
    assert found.allocator == "glibc, in the program, which is statically linked"
    assert re.match("the program is statically linked, .*libheaptap-guest.a and -Wl,--wrap .*heaptap/sample.h",
                    found.remedy)


def test_a_32_bit_program(lab):
    """Without libraries: those of 32 bits need not be here. It waits for a signal."""
    with open(lab.path("main.s"), "w", encoding="ascii") as file:
        file.write(".globl _start\n_start: movl $29, %eax\n int $0x80\n jmp _start\n")
    subprocess.run(["gcc", "-m32", "-nostdlib", "-static", "main.s", "-o", "main"], cwd=lab.folder, check=True)
    process = lab.program(lab.path("main"))
    wait_until(lambda: os.readlink(f"/proc/{process.pid}/exe") == lab.path("main"), "the program runs")
    found = Diagnosis(process.pid)
    assert found.status == 3
    assert found.remedy == "it is a 32-bit program, and heaptap records 64-bit programs for x86-64 only"
    process.signal(signal.SIGKILL)
    process.wait()


def test_a_program_with_its_own_malloc(lab):
    source = COPIES + ("static char memory[1 << 20];\nstatic unsigned long used;\n"
                       "void *malloc(unsigned long size) { used += size + 16 & ~15ul; return memory + used - size; }\n"
                       "void free(void *block) { (void)block; }\n")
    found = Diagnosis(started(lab, compiled(lab, source, "-w", "-fno-builtin")).pid)
    assert found.allocator == "its own, in the program itself"
    assert re.match("the program has an allocator of its own, .*libheaptap-guest.a", found.remedy)


@pytest.mark.parametrize("flags, own, remedy", [
    (["-fsanitize=address", "-static-libasan"], "AddressSanitizer", "the program has AddressSanitizer, and no preloaded library"),
    (["-Wl,-Bstatic", "-ljemalloc", "-Wl,-Bdynamic", "-lstdc++", "-lm"], "jemalloc", "the program has an allocator of its own, and"),
], ids=["AddressSanitizer", "jemalloc"])
def test_a_program_that_keeps_its_malloc(lab, flags, own, remedy):
    """The library is there and ready, but gets no call."""
    source = COPIES + "#include <stdlib.h>\n"
    with open(lab.path("main.c"), "w", encoding="ascii") as file:
        file.write(source + "int main(void) { return malloc(1) == 0 || copies(); }\n")
    subprocess.run(["gcc", "-w", "-fno-builtin", "main.c", "-o", "main", *flags], cwd=lab.folder, check=True)
    found = Diagnosis(started(lab, lab.path("main"), env={"LD_PRELOAD": LIBRARY}).pid)
    assert found.status == 3
    assert found.allocator == f"{own}, in the program itself"
    assert found.findings["sampled allocator"]["missing"] == f"{LIBRARY} gets no calls"
    assert found.remedy.startswith(remedy)


def test_a_shared_sanitizer(lab):
    found = Diagnosis(started(lab, compiled(lab, COPIES + "#include <stdlib.h>\n", "-w", "-fsanitize=address")).pid)
    assert re.fullmatch(r"AddressSanitizer \(/.*/libasan\.so\.\d+\S*\)", found.allocator)
    assert found.remedy.startswith("to keep AddressSanitizer: ASAN_OPTIONS=verify_asan_link_order=0 heaptap run --guest -- ")


def test_a_go_program(lab):
    process = lab.program(go_programs.built(
        lab.folder, 'package main\nimport ("fmt"; "time")\nfunc main() { fmt.Println("x"); time.Sleep(1000 * time.Second) }\n'))
    wait_until(lambda: process.stdout(), "it runs")
    found = Diagnosis(process.pid)
    assert found.allocator == "Go's own, which is not a malloc"
    assert found.remedy == "use Go's heap profiler (runtime/pprof) for Go's heap"


def test_another_producer(lab):
    """An allocator that emits the probes itself is recorded as it is."""
    process = lab.program(target("foreign"), talks=True)
    process.answer()
    found = Diagnosis(process.pid)
    assert found.status == 0
    assert found.findings["sampled allocator"]["detail"].endswith(
        f"libsmall.so, without a control block: it samples at its own rate, and is recorded as it is "
        f"(heaptap attach {process.pid})")


def test_a_set_user_id_program(lab):
    """The dynamic linker ignores LD_PRELOAD there."""
    if os.statvfs(lab.folder).f_flag & os.ST_NOSUID:
        pytest.fail(f"{lab.folder} is mounted nosuid")
    os.chmod(lab.folder, 0o755)
    program = shutil.copy("/bin/cat", lab.path("copier"))
    os.chmod(program, 0o4755)
    process = started(lab, program, "-", env={"LD_PRELOAD": GUEST}, **NOBODY)
    found = Diagnosis(process.pid)
    assert found.status == 3
    assert found.remedy.startswith("the program is set-user-ID or has capabilities of its own, ")


def test_a_container(lab):
    process = started(lab, "unshare", "-m", "cat", "-")
    found = Diagnosis(process.pid)
    assert "it is in a container (another mount namespace): the library must be there too" in found.remedy


def test_hostile_texts(lab):
    """What a process chooses is shown in printable ASCII, and is cut."""
    program = shutil.copy("/bin/cat", lab.path("c\x1b[2Jat\n"))
    process = started(lab, program, "-", env={"LD_PRELOAD": "/\x1b[31m.so /é.so"})
    found = Diagnosis(process.pid)
    assert "LD_PRELOAD=/?[31m.so:/??.so heaptap run" in found.remedy
    assert all(" " <= character <= "~" for character in found.remedy + found.process["detail"])
    assert len(Diagnosis(started(lab, "cat", *["-"] * 2500).pid).remedy) < 2000


def test_no_such_process(lab):
    gone = lab.program("true")
    gone.wait()
    found = Diagnosis(gone.pid)
    assert (found.status, found.process["missing"]) == (3, f"no process {gone.pid}")


def test_a_kernel_thread():
    found = Diagnosis(2)
    assert (found.status, found.process["missing"]) == (3, "has no memory: it is a kernel thread, or has just ended")


def test_without_permission(lab):
    process = started(lab, "cat", "-")
    found = Diagnosis(process.pid, **{"user": NOBODY["user"], "group": NOBODY["group"], "extra_groups": []})
    assert found.status == 4
    assert re.search("missing CAP_.*: run heaptap as root", found.process["missing"])
