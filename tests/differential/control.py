# SPDX-License-Identifier: Apache-2.0
"""Runs mallctl_trials (targets/mallctl_trials.c) under jemalloc or heaptap, and makes tables of its output."""

import os
import re
import subprocess

import harness

JEMALLOC = "libjemalloc.so.2"
TRIALS = os.path.join(harness.BUILD, "tests", "differential", "mallctl_trials")
LIMIT_SECONDS = 300
# Marks a successful call that has changed errno; jemalloc's may, heaptap's must not.
ERRNO = " errno changed"
# Names whose values show what an option string did.
SHOWING_OPTIONS = ["opt.", "prof.active", "prof.gdump", "prof.thread_active_init", "prof.lg_sample", "prof.interval",
                   "thread.prof.", "thread.tcache.enabled", "background_thread", "arenas.dirty_decay_ms",
                   "arenas.muzzy_decay_ms", "experimental.prof_recent.alloc_max"]
# Makes and runs a copy of the program that is set-user-ID for another user.
SETUID = """cp "$1" "$0/setuid" && chown 65534 "$0/setuid" && chmod u+s,go+rx "$0/setuid" && shift && exec "$0/setuid" "$@" """
# The output of stats_interval; its frequency depends on the allocations.
STATISTICS = re.compile(r"(___ Begin jemalloc statistics ___\n.*?--- End jemalloc statistics ---\n)+", re.DOTALL)
PRIVATE_ETC = 'mount --bind "$0" /etc && exec "$@"'


def table(output):
    """{name: {trial: result}}"""
    result = {}
    for line in output.splitlines():
        name, trial, text = line.split("|", 2)
        assert trial not in result.setdefault(name, {}), line
        result[name][trial] = text
    return result


def errno_faults(results):
    return [f"{name} | {trial}: {text}" for name, trials in results.items() for trial, text in trials.items()
            if ERRNO in text]


def without_errno(results):
    return {name: {trial: text.replace(ERRNO, "") for trial, text in trials.items()}
            for name, trials in results.items()}


def mallctl(allocator, folder, options, prefixes):
    """The table of all names, or of those with one of the prefixes. allocator: a library."""
    process = harness.Process([TRIALS, *prefixes], folder, env={"LD_PRELOAD": allocator, "MALLOC_CONF": options})
    return _trials_of(process)


def mallctl_recorded(folder, options, prefixes):
    """The same under `heaptap run`."""
    session = harness.Session(["run", "--books", "--", TRIALS, *prefixes], folder, env={"MALLOC_CONF": options})
    result = _trials_of(session)
    session.check()
    return result


def _trials_of(process):
    status = process.wait(LIMIT_SECONDS)
    assert status == 0, f"{process.command}: status {status}\n{process.stderr()[-2000:]}"
    return table(process.stdout())


class Source:
    """Where a program finds its options. program: which build of it; variable: MALLOC_CONF; link: the target of the link
    /etc/malloc.conf; file: the text of a regular file instead; is_setuid: runs as another user. The machine's own /etc is
    neither used nor changed."""

    def __init__(self, program="mallctl_trials", variable=None, link=None, file=None, is_setuid=False):
        self.program = program
        self.variable = variable
        self.link = link
        self.file = file
        self.is_setuid = is_setuid

    def command(self, allocator, library, folder):
        path = os.path.join(os.path.dirname(TRIALS), self.program.format(allocator=allocator))
        if self.is_setuid:
            command = ["sh", "-c", SETUID, folder, path]
        else:
            # Preload only the program: the programs that start it would print the same messages.
            command = ["env", f"LD_PRELOAD={library}", path]
        command += ["--read", *SHOWING_OPTIONS]
        return self._in_private_etc(folder, command) if self.link is not None or self.file is not None else command

    def _in_private_etc(self, folder, command):
        etc = os.path.join(folder, "etc")
        os.makedirs(etc, exist_ok=True)
        path = os.path.join(etc, "malloc.conf")
        if os.path.lexists(path):
            os.unlink(path)
        if self.link is not None:
            os.symlink(self.link, path)
        elif self.file is not None:
            with open(path, "w", encoding="ascii") as file:
                file.write(self.file)
        return ["unshare", "--mount", "sh", "-c", PRIVATE_ETC, etc, *command]


def options_of(library, allocator, folder, source):
    """The results of the program with options from this Source: {"status", "stderr" and names: results}."""
    result = subprocess.run(source.command(allocator, library, folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            cwd=folder, env=harness.environment(folder, {"MALLOC_CONF": source.variable}), check=False,
                            timeout=LIMIT_SECONDS)
    values = {name: trials["read"] for name, trials in table(result.stdout.decode("utf-8", "replace")).items()}
    errors = STATISTICS.sub("(statistics)\n", result.stderr.decode("utf-8", "backslashreplace"))
    return {"status": str(result.returncode), "stderr": errors, **values}


def changes(values, defaults):
    """The effects of options: status, stderr, and the names whose results are not the defaults."""
    return {name: value for name, value in values.items()
            if name in ("status", "stderr") or value != defaults.get(name)}
