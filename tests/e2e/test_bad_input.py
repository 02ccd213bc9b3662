# SPDX-License-Identifier: Apache-2.0
"""Bad input: one clear line that says what and what to do, and the right exit status.

1 failure, 2 usage, 3 no such target, 4 permission (naming the capability).
"""

import os
import shutil
import signal
import subprocess
import tempfile

import symbols
from harness import BUILD, LIBRARY, PATIENCE_SECONDS, Case, target

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]


class Usage(Case):
    needs_bpf = False

    def test_usage(self):
        for arguments in ([], ["no-such-command"], ["run"], ["run", "--"], ["run", "--no-such-flag", "--", "true"],
                          ["run", "--exact", "--lg-sample", "10", "--", "true"],
                          ["run", "--lg-sample", "x", "--", "true"], ["run", "--lg-sample", "64", "--", "true"],
                          ["run", "--lg-sample", "-1", "--", "true"], ["run", "--interval", "0", "--", "true"],
                          ["run", "--high-water=x", "--", "true"], ["attach"], ["attach", "-p"],
                          ["attach", "-p", "abc"], ["attach", "-p", "0"], ["attach", "-p", "-1"],
                          ["attach", "-p", "1", "-d", "x"], ["doctor", "--no-such-flag"]):
            with self.subTest(arguments=arguments):
                session = self.heaptap(*arguments)
                session.records = False
                self.assertEqual(session.wait(), 2, session.stderr())
                self.assertRegex(session.stderr(), r"(?m)^heaptap: |[Uu]sage")
                self.assertNotRegex(session.stderr(), "terminate called|Aborted|core dumped")

    def test_help_is_no_error(self):
        for arguments in (["--help"], ["run", "--help"], ["attach", "--help"], ["doctor", "--help"]):
            with self.subTest(arguments=arguments):
                session = self.heaptap(*arguments)
                session.records = False
                self.assertEqual(session.wait(), 0)
                self.assertIn("heaptap", session.stdout())


class NoSuchTarget(Case):
    def test_unknown_pid(self):
        gone = self.program("true")
        gone.wait()
        session = self.heaptap("attach", "-p", gone.pid)
        self.assert_one_clear_line(session, 3, str(gone.pid))

    def test_a_zombie(self):
        """It has exited and nobody has asked for its status yet."""
        child = os.fork()
        if child == 0:
            os._exit(0)
        try:
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
            self.assert_one_clear_line(self.heaptap("attach", "-p", child), 3, str(child))
        finally:
            os.waitpid(child, 0)

    def test_a_kernel_thread(self):
        self.assert_one_clear_line(self.heaptap("attach", "-p", 2), 3, "2")

    def test_without_the_library(self):
        sleeper = self.program("sleep", "1000")
        session = self.heaptap("attach", "-p", sleeper.pid)
        self.assert_one_clear_line(session, 3, str(sleeper.pid), "libheaptap.so|allocator")
        self.assertTrue(sleeper.alive())

    def test_the_target_exits_during_attach(self):
        """Whenever it exits: recorded, or no such target; never a crash, never a hang."""
        for _ in range(8):
            puppet = self.preloaded_puppet()
            session = self.heaptap("attach", "-p", puppet.target_pid)
            session.records = False
            os.kill(puppet.target_pid, signal.SIGKILL)
            puppet.wait()
            status = session.wait()
            self.assertIn(status, (0, 3), session.stderr())
            if status == 3:
                self.assertEqual(len(session.lines()), 1, session.lines())


class Permission(Case):
    def public(self, *paths):
        """Copies that everybody may read, in a folder that everybody may write: the checkout may lie where only root
        may go."""
        folder = os.path.join(self.folder, "public")
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        for path in paths:
            shutil.copy(path, folder)
        return folder

    def test_run_by_nobody(self):
        folder = self.public(os.path.join(BUILD, "heaptap"), LIBRARY)
        session = self.heaptap("run", "--", "true", binary=f"{folder}/heaptap", before=NOBODY, cwd=folder)
        self.assert_one_clear_line(session, 4, "CAP_(BPF|SYS_ADMIN|PERFMON)")

    def test_attach_by_nobody_to_root_s_process(self):
        folder = self.public(os.path.join(BUILD, "heaptap"), LIBRARY)
        puppet = self.preloaded_puppet()
        session = self.heaptap("attach", "-p", puppet.target_pid, binary=f"{folder}/heaptap", before=NOBODY, cwd=folder)
        self.assert_one_clear_line(session, 4, "CAP_[A-Z_]+")

    def test_another_user_s_process(self):
        """With everything that eBPF needs, but not the right to look into another user's process."""
        puppet = self.preloaded_puppet()
        self.assertEqual(puppet.ask("uid 65534"), "uid 65534")
        session = self.heaptap("attach", "-p", puppet.target_pid,
                               before=["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"])
        self.assert_one_clear_line(session, 4, "CAP_SYS_PTRACE")
        self.assertEqual(puppet.ask("keep 1 1"), "kept 1")

    def test_bpf_forbidden(self):
        """As in a container without the right: bpf(2) says EPERM to root."""
        session = self.heaptap("run", "--", "true", before=[target("without_bpf"), "EPERM"])
        self.assert_one_clear_line(session, 4, "CAP_(BPF|SYS_ADMIN)|seccomp")

    def test_bpf_absent(self):
        """As in a kernel without it: bpf(2) says ENOSYS."""
        session = self.heaptap("run", "--", "true", before=[target("without_bpf"), "ENOSYS"])
        self.assert_one_clear_line(session, 1, "(?i)bpf|kernel")


class Output(Case):
    def test_folder_that_does_not_exist(self):
        """Said before the command starts."""
        session = self.heaptap("run", "-o", "no/such/folder/x", "--", "touch", "started")
        self.assert_one_clear_line(session, 1, "no/such/folder")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "started")))

    def test_folder_that_is_a_file(self):
        session = self.heaptap("run", "-o", "/etc/passwd/x", "--", "true")
        self.assert_one_clear_line(session, 1, "/etc/passwd")

    def test_folder_that_nobody_can_write(self):
        session = self.heaptap("run", "-o", "/proc/self/x", "--", "true")
        self.assert_one_clear_line(session, 1, "/proc/self")

    def test_attach_with_an_unwritable_folder(self):
        puppet = self.preloaded_puppet()
        session = self.heaptap("attach", "-p", puppet.target_pid, "-o", "no/such/folder/x")
        self.assert_one_clear_line(session, 1, "no/such/folder")
        self.assertEqual(puppet.ask("keep 1 1"), "kept 1")

    def assert_failed_without_a_trace(self, session, folder):
        """Status 1, the reason said, and nothing in the folder: neither half a dump nor what it was made of."""
        self.assertEqual(session.wait(), 1, session.stderr())
        self.assertRegex("\n".join(session.lines()), r"(?mi)^heaptap: .*(space|too large|cannot write)")
        self.assertEqual(os.listdir(folder), [])

    def test_disk_full(self):
        """A tmpfs of 64 KiB and a dump of a megabyte."""
        folder = tempfile.mkdtemp(dir=self.folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "heaptap-test", folder], check=True)
        self.addCleanup(subprocess.run, ["umount", folder], check=False)
        session = self.heaptap("run", "--exact", "-o", f"{folder}/x", "--", target("contexts"), "12")
        self.assert_failed_without_a_trace(session, folder)

    def test_file_size_limit(self):
        """RLIMIT_FSIZE of 64 KiB: the write fails, SIGXFSZ does not kill."""
        folder = tempfile.mkdtemp(dir=self.folder)
        session = self.heaptap("run", "--exact", "-o", f"{folder}/x", "--", target("contexts"), "12",
                               before=["prlimit", "--fsize=65536"])
        self.assert_failed_without_a_trace(session, folder)


class ReplacedLibrary(Case):
    def test_library_replaced_on_disk(self):
        """The process runs on the old file, which has no name any more: it is recorded all the same, or refused in one
        line that names the file."""
        old = os.path.join(self.folder, "libold.so")
        shutil.copy(LIBRARY, old)
        puppet = self.puppet(env={"LD_PRELOAD": old})
        shutil.copy(LIBRARY, old + ".new")
        os.rename(old + ".new", old)
        session = self.heaptap("attach", "-p", puppet.target_pid, "--exact")
        try:
            session.wait_said(r"^heaptap: attached to")
        except AssertionError:
            self.assert_one_clear_line(session, 1, "libold.so")
            return
        puppet.ask("keep 40000 100")
        session.signal(signal.SIGTERM)
        self.assertEqual(session.wait(PATIENCE_SECONDS), 0, session.stderr())
        self.assertTrue(symbols.stacks_through(self.only_dump(), "keep_blocks"))
