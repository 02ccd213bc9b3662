# SPDX-License-Identifier: Apache-2.0
"""Who would harm a root daemon: a process that it records, a local user at its socket, an HTTP client.

Each test also sees that somebody else is served as before.
"""

import contextlib
import errno
import grp
import json
import os
import re
import shutil
import signal
import socket
import stat
import time

from daemon import EXACT, DaemonCase
from harness import DumpName, wait_until, target

NOBODY = 65534
# Above all that a daemon may make somebody wait for; what is measured takes some milliseconds.
PROMPT_SECONDS = 8


def hexadecimal(name):
    return name.encode().hex()


class SecurityCase(DaemonCase):
    def talking(self, *command, **options):
        """A program that has said that it is ready."""
        process = self.program(*command, talks=True, **options)
        process.answer()
        return process

    def puppet(self, count=3, **options):
        """A program that the daemon records, with `count` blocks of 1000 bytes."""
        env = dict(EXACT, **options.pop("env", {}))
        process = self.preloaded(target("puppet"), talks=True, env=env, **options)
        process.answer()
        process.ask(f"keep {count} 1000")
        return process

    def hostile(self, **options):
        return self.talking(target("hostile"), **options)

    def recorded(self, daemon, process):
        return wait_until(lambda: daemon.processes().get(process.pid), f"{process.command} is recorded")

    def assert_prompt(self, daemon):
        begin = time.monotonic()
        self.assertEqual(daemon.get("/healthz").body, b"ok\n")
        self.assertLess(time.monotonic() - begin, PROMPT_SECONDS)

    def assert_serves(self, daemon):
        """A new process is recorded and dumped."""
        puppet = self.puppet()
        self.recorded(daemon, puppet)
        path = os.path.join(self.folder, f"served.{puppet.pid}")
        daemon.dump(puppet.pid, path)
        with open(path, encoding="ascii") as file:
            # Behind what was lost, if anything was.
            self.assertRegex(file.read(), r"(?m)^heap_v2/")
        self.assert_prompt(daemon)
        self.assertEqual(puppet.wait(), 0)

    @contextlib.contextmanager
    def running(self, daemon):
        """The collector lives through it and serves afterwards."""
        yield
        self.assertTrue(daemon.process.alive(), daemon.process.stderr())
        self.assert_serves(daemon)


class HostileTargets(SecurityCase):
    def test_lies_about_the_control_block(self):
        """Each process that lies is named once, however often it does it."""
        daemon = self.daemon("--exact")
        with self.running(daemon):
            # The first one that maps the file shows it to the collector.
            self.recorded(daemon, self.hostile())
            for lie in ("garbage", "null", "kernel", "noncanonical"):
                hostile = self.hostile()
                hostile.ask(f"flood {lie} 3000")
                said = f"process {hostile.pid} has no valid control block"
                daemon.wait_said(said)
                hostile.ask(f"start {lie}")
                self.assert_prompt(daemon)
                self.assertEqual(hostile.wait(), 0)
                self.assertEqual(daemon.process.stderr().count(said), 1)

    def test_control_block_that_is_not_there(self):
        """The page of the control block faults for ever; who asks for what is in it is told so."""
        daemon = self.daemon("--exact")
        with self.running(daemon):
            hostile = self.hostile()
            self.recorded(daemon, hostile)
            self.assertEqual(hostile.ask("start absent"), "started absent")
            hostile.ask("sample 3")
            begin = time.monotonic()
            self.assertNotEqual(daemon.get(f"/pid/{hostile.pid}/allocator.json").status, 200)
            daemon.get(f"/pid/{hostile.pid}/mtev/memory.json")
            self.assertLess(time.monotonic() - begin, PROMPT_SECONDS)
            self.assertNotEqual(daemon.request("POST", f"/pid/{hostile.pid}/active?value=off").status, 200)
            self.assertLessEqual(daemon.process.stderr().count("does not let its memory be had"), 1)

    def test_requests_without_end(self):
        """Requests that nobody waits for cost no profile each: others are served meanwhile."""
        daemon = self.daemon("--exact", losses_allowed=("events_full",))
        with self.running(daemon):
            floods = [self.hostile() for _ in range(2)]
            for hostile in floods:
                hostile.ask("sample 3")
                hostile.tell("requests 20000")
            self.assert_prompt(daemon)
            for hostile in floods:
                hostile.answer()
                self.assertEqual(hostile.wait(), 0)

    def test_descriptors_for_a_dump(self):
        """Only a regular file that may be written is written to."""
        daemon = self.daemon("--exact")
        with self.running(daemon):
            hostile = self.hostile()
            hostile.ask("sample 3")
            self.recorded(daemon, hostile)
            with open(f"/proc/{hostile.pid}/oom_score_adj", encoding="ascii") as file:
                before = file.read()
            expected = dict.fromkeys(("readonly", "pipe", "socket", "proc", "device", "folder", "epoll", "closed"),
                                     errno.EBADF)
            expected["sealed"] = errno.EPERM
            for kind, error in expected.items():
                self.assertEqual(hostile.ask(f"ask {kind}"), f"answered {error}", kind)
            with open(f"/proc/{hostile.pid}/oom_score_adj", encoding="ascii") as file:
                self.assertEqual(file.read(), before)
            path = os.path.join(self.folder, "asked")
            self.assertEqual(hostile.ask(f"ask {path}"), "answered 0")
            with open(path, encoding="ascii") as file:
                self.assertTrue(file.read().startswith("heap_v2/"))
            self.assertEqual(hostile.wait(), 0)

    def test_symlinked_prefix(self):
        """A process's own dump goes where the process itself may write, whatever its prefix points to."""
        precious = os.path.join(self.folder, "precious")
        with open(precious, "w", encoding="ascii") as file:
            file.write("precious")
        os.chmod(precious, 0o600)
        mine = os.path.join(self.folder, "mine")
        os.mkdir(mine)
        os.chown(mine, NOBODY, NOBODY)
        daemon = self.daemon("--exact")
        with self.running(daemon):
            puppet = self.puppet(env={"MALLOC_CONF": f"prof:true,lg_prof_sample:0,prof_prefix:{mine}/p"}, cwd=mine,
                                 user=NOBODY, group=NOBODY, extra_groups=[])
            for sequence in range(3):
                os.symlink(precious, os.path.join(mine, f"p.{puppet.pid}.{sequence}.m{sequence}.heap"))
            puppet.ask("dump")
            puppet.ask(f"dump {mine}/p.{puppet.pid}.0.m0.heap")
            with open(precious, encoding="ascii") as file:
                self.assertEqual(file.read(), "precious")
            shutil.rmtree(mine)

    def test_names(self):
        """A command is any bytes; the name of its dump, and what is said of it, are plain."""
        daemon = self.daemon("--exact")
        names = {"/../../x": None, "..": None, ".hidden": None, "a\nheaptap: lie": None, "ä" * 7: None, "'$(id)`": None}
        for name in names:
            hostile = self.hostile()
            hostile.ask(f"name {hexadecimal(name)}")
            # Of the first one the collector sees the file late.
            wait_until(lambda: hostile.ask("sample 3") and
                       daemon.processes().get(hostile.pid, {}).get("samples"), "it has samples")
            self.assertRegex(daemon.processes()[hostile.pid]["command"], r"^[ -~]*$")
            listed = daemon.client("list")
            self.assertEqual(len(re.findall(rf"^ *{hostile.pid} .*$", listed, re.MULTILINE)), 1, listed)
            self.assertRegex(listed, r"\A[ -~\n]*\Z")
            self.assertNotIn("\nheaptap: lie", listed)
            hostile.signal(signal.SIGSEGV)
            self.assertEqual(hostile.wait(), -signal.SIGSEGV)
            names[name] = hostile.pid
        for name, pid in names.items():
            path = daemon.wait_said(rf"^heaptap: wrote (\S+\.{pid}\.0\.f\.heap): ").group(1)
            self.assertEqual(os.path.dirname(path), daemon.state_folder, name)
            self.assertRegex(os.path.basename(path), r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$")
            self.assertEqual(DumpName(path).pid, pid)
            self.assertTrue(os.path.isfile(path))
        self.assertNotRegex(daemon.process.stderr(), r"(?m)^heaptap: lie")

    def test_mappings_that_nobody_hears_of(self):
        """A process that maps files without end hides from the collector what others map; it looks itself then."""
        daemon = self.daemon("--exact")
        with self.running(daemon):
            noise = [self.hostile(preexec_fn=lambda cpu=cpu: os.sched_setaffinity(0, {cpu}))
                     for cpu in os.sched_getaffinity(0)]
            daemon.process.signal(signal.SIGSTOP)
            for hostile in noise:
                hostile.ask("map 20000")
            puppet = self.puppet()
            daemon.process.signal(signal.SIGCONT)
            path = os.path.join(self.folder, "mapped")

            def names():
                if puppet.pid not in daemon.processes():
                    return False
                daemon.dump(puppet.pid, path)
                with open(path, encoding="ascii") as file:
                    return os.path.realpath(target("puppet")) in file.read()
            wait_until(names, "the dump says where its code is")

    def test_probe_files_of_a_user(self):
        """Files with probes that a user makes are attached to up to a bound; the machine's are all the same."""
        daemon = self.daemon("--exact")
        with self.running(daemon):
            path = os.path.join(self.folder, "many")
            shutil.copy(target("hostile"), path)
            os.chown(path, NOBODY, NOBODY)
            copy = self.talking(path, user=NOBODY, group=NOBODY, extra_groups=[])
            copy.ask("sample 1")
            self.recorded(daemon, copy)
            self.assertEqual(copy.wait(), 0)


class LocalUsers(SecurityCase):
    """Who connects is who the kernel says; see as_user()."""

    ALL_PAGES = ("mtev/memory.json", "mtev/heap_profile", "pprof/heap", "pprof/growth", "pprof/symbol",
                 "pprof/cmdline", "debug/pprof/heap", "debug/pprof/allocs", "debug/pprof/cmdline",
                 "debug/pprof/symbol", "heap", "collapsed", "jeprof", "allocator.json")
    DEEDS = ("dump", "active?value=off", "rate?lg=20")

    def as_user(self, daemon, requests, uid=NOBODY, groups=()):
        """The answers, [status, body], to [method, path] of a child that has become that user."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setgroups(list(groups))
                os.setgid(NOBODY)
                os.setuid(uid)
                answers = [daemon.request(method, path) for method, path in requests]
                text = json.dumps([[answer.status, answer.body.decode("latin-1")] for answer in answers])
                with os.fdopen(writer, "w", encoding="ascii") as file:
                    file.write(text)
                status = 0
            finally:
                os._exit(status)
        os.close(writer)
        with os.fdopen(reader, encoding="ascii") as file:
            text = file.read()
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        return json.loads(text)

    def user_puppet(self, **options):
        return self.puppet(user=NOBODY, group=NOBODY, extra_groups=[], **options)

    def overview(self, daemon, **user):
        """PIDs in /processes.json, of processes in /metrics and on the index page."""
        answers = self.as_user(daemon, [["GET", "/processes.json"], ["GET", "/metrics"], ["GET", "/"]], **user)
        for status, _ in answers:
            self.assertEqual(status, 200)
        listed = {entry["pid"] for entry in json.loads(answers[0][1])["processes"]}
        measured = {int(pid) for pid in re.findall(r'pid="(\d+)"', answers[1][1])}
        linked = {int(pid) for pid in re.findall(r"/pid/(\d+)/", answers[2][1])}
        return listed, measured, linked

    def test_users_have_their_own_processes_only(self):
        daemon = self.daemon("--exact")
        profiling = {"MALLOC_CONF": "prof:true,lg_prof_sample:0"}
        roots = self.puppet(env=profiling)
        users = self.user_puppet(env=profiling)
        for process in (roots, users):
            self.recorded(daemon, process)
        self.assertEqual(self.overview(daemon), ({users.pid},) * 3)
        self.assertLessEqual({roots.pid, users.pid}, self.overview(daemon, uid=0)[0])

        before = sorted(os.listdir(daemon.state_folder))
        foreign = [["GET", f"/pid/{roots.pid}/{page}"] for page in self.ALL_PAGES]
        foreign += [["GET", f"/{page}?pid={roots.pid}"] for page in ("mtev/memory.json", "pprof/heap")]
        foreign += [["POST", f"/pid/{roots.pid}/{deed}"] for deed in self.DEEDS]
        foreign += [["GET", f"/pid/{roots.pid}/mtev/heap_profile?{what}"]
                    for what in ("active=false", "trigger_dump=true")]
        nobodys = [[method, path.replace(str(roots.pid), "4194303")] for method, path in foreign]
        # What is not the user's is as if it were not there, to the word.
        for (method, path), theirs, none in zip(foreign, self.as_user(daemon, foreign), self.as_user(daemon, nobodys)):
            self.assertEqual(theirs[0], 404, f"{method} {path}")
            self.assertEqual(theirs[1].replace(str(roots.pid), "4194303"), none[1], path)
        self.assertEqual(sorted(os.listdir(daemon.state_folder)), before)
        self.assertEqual(roots.ask("is prof.active"), "mallctl 0 1")

        own = [["GET", f"/pid/{users.pid}/{page}"] for page in self.ALL_PAGES]
        own += [["POST", f"/pid/{users.pid}/{deed}"] for deed in self.DEEDS]
        for (method, path), answer in zip(own, self.as_user(daemon, own)):
            self.assertEqual(answer[0], 200, f"{method} {path}: {answer[1]}")
        self.assertEqual(users.ask("is prof.active"), "mallctl 0 0")

        ((status, body),) = self.as_user(daemon, [["POST", "/dump"]])
        self.assertEqual(status, 200)
        self.assertEqual([entry["pid"] for entry in json.loads(body)["dumps"]], [users.pid])

    def test_members_of_the_group_have_all(self):
        group = grp.getgrgid(1)
        daemon = self.daemon("--exact", "--group", group.gr_name)
        roots = self.puppet()
        self.recorded(daemon, roots)
        self.assertEqual(self.overview(daemon), (set(), set(), set()))
        for pids in self.overview(daemon, groups=[group.gr_gid]):
            self.assertIn(roots.pid, pids)
        ((status, _),) = self.as_user(daemon, [["POST", f"/pid/{roots.pid}/dump"]], groups=[group.gr_gid])
        self.assertEqual(status, 200)

    def copy_of_hostile(self, name):
        path = os.path.join(self.folder, name)
        shutil.copy(target("hostile"), path)
        os.chmod(path, 0o755)
        return path

    def test_programs_with_more_rights_are_not_the_users(self):
        """Whoever may not look into a process by other means may not by this one."""
        daemon = self.daemon("--exact")
        setuid = self.copy_of_hostile("setuid")
        os.chmod(setuid, 0o4755)
        capable = self.copy_of_hostile("capable")
        # struct vfs_cap_data, revision 2: CAP_NET_RAW, permitted and effective (linux/capability.h).
        os.setxattr(capable, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
        secret = self.copy_of_hostile("secret")
        os.chmod(secret, 0o711)
        plain = self.copy_of_hostile("plain")
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        liars = [self.talking(path, **user) for path in (setuid, capable, secret, plain)]
        for process in liars:
            # Until the collector has seen the file.
            wait_until(lambda: process.ask("sample 3") and process.pid in daemon.processes(), f"{process.command}")
        *privileged, users = liars
        # One that was root's, and has all that it had in its memory.
        former = self.puppet()
        self.assertEqual(former.ask(f"uid {NOBODY}"), f"uid {NOBODY}")
        privileged.append(former)
        for process in (*privileged, users):
            self.recorded(daemon, process)
        self.assertEqual(self.overview(daemon), ({users.pid},) * 3)

    def test_one_user_cannot_take_all_connections(self):
        daemon = self.daemon("--exact")
        puppet = self.puppet()
        self.recorded(daemon, puppet)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            connections = []
            for _ in range(64):
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(daemon.socket)
                # Half a request, of those that are not sent away.
                with contextlib.suppress(OSError):
                    connection.send(b"GET /processes.json HTTP/1.1\r\nX: ")
                connections.append(connection)
            os.write(writer, b".")
            signal.pause()
        self.assertEqual(os.read(reader, 1), b".")
        self.assert_prompt(daemon)
        self.assertIn(puppet.pid, daemon.processes())


class Clients(SecurityCase):
    def raw(self, daemon, text):
        """What comes back for these bytes until the connection ends."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(daemon.socket)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(text)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while part := connection.recv(65536):
                    answer += part
            return answer

    def test_what_is_no_request(self):
        daemon = self.daemon("--exact")
        puppet = self.puppet()
        self.recorded(daemon, puppet)
        close = b"Connection: close\r\n\r\n"
        for path in (b"/../../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"/pid/../../etc/passwd", b"/pid/1/../heap",
                     b"//etc/passwd", b"/pid/%00/heap", f"/pid/{puppet.pid}/heap/../../x".encode(),
                     f"/pid/{puppet.pid}//etc/passwd".encode()):
            answer = self.raw(daemon, b"GET " + path + b" HTTP/1.1\r\n" + close)
            self.assertRegex(answer, rb"^HTTP/1.1 40[04] ", path)
            self.assertNotIn(b"root:", answer)
        # Parameters are no paths either.
        answer = daemon.get(f"/pid/{puppet.pid}/mtev/heap_profile?trigger_dump=true&file=/tmp/x&filename=/tmp/x")
        self.assertNotIn(b"/tmp/x", answer.body)
        self.assertFalse(os.path.exists("/tmp/x"))
        self.assertRegex(self.raw(daemon, b"GET / HTTP/1.1\r\nX: " + b"y" * (64 << 10)), rb"^HTTP/1.1 431 ")
        self.assertRegex(self.raw(daemon, b"GET /" + b"y" * 9000 + b" HTTP/1.1\r\n" + close), rb"^HTTP/1.1 414 ")
        self.assertRegex(self.raw(daemon, b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n" + close),
                         rb"^HTTP/1.1 413 ")
        self.assertRegex(self.raw(daemon, b"\x16\x03\x01\x02\x00\r\n\r\n"), rb"^HTTP/1.1 400 ")
        self.assert_serves(daemon)

    def test_slow_clients(self):
        """Who sends a byte now and then is sent away in time; others are answered meanwhile."""
        daemon = self.daemon("--exact")
        slow = []
        # One user has eight.
        for _ in range(6):
            connection = socket.socket(socket.AF_UNIX)
            self.addCleanup(connection.close)
            connection.connect(daemon.socket)
            connection.setblocking(False)
            slow.append(connection)
        request = b"GET /processes.json HTTP/1.1\r\n" + b"X-Slow: yes\r\n" * 1000
        sent = 0
        open_ones = set(slow)

        def drip():
            nonlocal sent
            for connection in list(open_ones):
                try:
                    connection.send(request[sent:sent + 1])
                    if connection.recv(1000) is not None:
                        open_ones.discard(connection)
                except BlockingIOError:
                    pass
                except OSError:
                    open_ones.discard(connection)
            sent += 1
            self.assert_prompt(daemon)
            return not open_ones
        wait_until(drip, "all slow clients are sent away")
        self.assert_serves(daemon)


class Files(SecurityCase):
    def mode(self, path):
        return stat.S_IMODE(os.lstat(path).st_mode)

    def test_what_it_writes_is_roots_alone(self):
        daemon = self.daemon("--exact", "--dump-at-exit", "always", umask=0)
        puppet = self.puppet()
        self.recorded(daemon, puppet)
        daemon.request("POST", f"/pid/{puppet.pid}/dump")
        states = os.path.join(daemon.state_folder, "recording")
        wait_until(lambda: "json" in " ".join(os.listdir(states)), "the state of the process is saved")
        self.assertEqual(self.mode(daemon.state_folder), 0o700)
        self.assertEqual(self.mode(states), 0o700)
        for name in filter(lambda name: name.endswith(".json"), os.listdir(states)):
            self.assertEqual(self.mode(os.path.join(states, name)) & 0o077, 0, name)
        self.assertEqual(puppet.wait(), 0)
        daemon.wait_said(rf"^heaptap: wrote \S+\.{puppet.pid}\.1\.f\.heap: ")
        dumps = [name for name in os.listdir(daemon.state_folder) if name.endswith(".heap")]
        self.assertEqual(len(dumps), 2)
        for name in dumps:
            self.assertEqual(self.mode(os.path.join(daemon.state_folder, name)), 0o600, name)

    def test_folders_of_others_are_refused(self):
        for make in (lambda path: os.chmod(path, 0o777), lambda path: os.chown(path, NOBODY, NOBODY)):
            daemon = self.daemon_that_may_not_start()
            os.mkdir(daemon.state_folder, 0o700)
            make(daemon.state_folder)
            collector = daemon.launch()
            self.assertEqual(collector.wait(), 1, collector.stderr())
            self.assertIn("must be a folder of root's", collector.stderr())
            self.assertEqual(os.listdir(daemon.state_folder), [])

    def daemon_that_may_not_start(self):
        from daemon import Daemon
        return Daemon(self.folder)


class Survival(SecurityCase):
    def test_killed_between_a_last_dump_and_the_end_of_the_books(self):
        """The next collector does not close them once more."""
        daemon = self.daemon("--exact", "--dump-at-exit", "always")
        for _ in range(5):
            puppet = self.puppet()
            self.recorded(daemon, puppet)
            puppet.wait()
            wait_until(lambda: [name for name in os.listdir(daemon.state_folder) if f".{puppet.pid}." in name],
                       "the last dump is there")
            daemon.restart()
            self.assert_serves(daemon)
            dumps = [name for name in os.listdir(daemon.state_folder) if f".{puppet.pid}." in name]
            self.assertEqual(len(dumps), 1, dumps)
            self.assertEqual([name for name in os.listdir(daemon.state_folder) if ".0.0." in name], [])

    def test_left_alone_and_then_another_program(self):
        """A rule leaves a process alone; what it runs next is recorded, and is the one that has the PID."""
        daemon = self.daemon("--exact", "--dump-at-exit", "always", "--rule", "comm=left* record=off")
        left = os.path.join(self.folder, "left_alone")
        shutil.copy(target("puppet"), left)
        process = self.preloaded(left, talks=True, env=EXACT)
        process.answer()
        process.ask("keep 3 1000")
        process.tell(f"exec {target('puppet')}")
        process.answer()
        process.ask("keep 5 1000")
        entry = self.recorded(daemon, process)
        self.assertEqual(entry["command"], "puppet")
        self.assertEqual(daemon.get(f"/pid/{process.pid}/heap").status, 200)
        self.assertEqual(process.wait(), 0)
        daemon.wait_said(rf"^heaptap: wrote \S+/puppet\.{process.pid}\.0\.f\.heap: ")
        self.assertEqual([name for name in os.listdir(daemon.state_folder) if name.startswith("left")], [])
