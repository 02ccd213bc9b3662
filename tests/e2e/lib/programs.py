# SPDX-License-Identifier: Apache-2.0
"""Real programs that the end-to-end tests and the memory benchmark run with heaptap.

A program is a function(folder, start). It runs in an empty folder and starts commands with start(command), which returns
a started process with wait(), stdout() and stderr(). It returns what must be the same in every mode: a dictionary of
statuses, outputs and files, without anything that differs from run to run (times, PIDs).
"""

import glob
import os
import re
import shutil
import subprocess
import time

from harness import ROOT, TIME_SCALE, environment, wait_until

# Of the newest version that is installed.
POSTGRES = max(glob.glob("/usr/lib/postgresql/*/bin"), default="/usr/lib/postgresql/bin")
LIMIT_SECONDS = 240 * TIME_SCALE


def finish(process):
    status = process.wait(LIMIT_SECONDS)
    return {"status": status, "stdout": process.stdout(), "stderr": process.stderr()}


def _once(*command):
    return lambda folder, start: finish(start(list(command)))


class Profiled:
    """A session of heaptap run, with the interface of the program that it runs."""

    def __init__(self, session):
        self.session = session
        self.wait = session.wait
        self.signal = session.signal
        self.alive = session.alive
        self.stdout = session.stdout

    def stderr(self):
        return "".join(line for line in self.session.stderr().splitlines(True)
                       if not line.startswith(("heaptap: ", "<heaptap>: ", "<jemalloc>: ", '{"books"')))


def w(folder, start):
    """The output of w without the numbers: times, loads, idle times."""
    result = finish(start(["w"]))
    result["stdout"] = re.sub(r"[\d.:]+", "#", re.sub(r"up .*?,  ", "up #,  ", result["stdout"]))
    return result

PYTHON = """
import json
document = json.loads(json.dumps({str(i): [i, i * 0.5, "x" * (i % 300)] for i in range(20000)}))
print(len(document), sum(len(text) for _, _, text in document.values()), sorted(document)[:5])
"""

SQL = """
create table item(id integer primary key, name text, price real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 50000)
  insert into item select i, 'item ' || (i * 7919 % 50000), (i * 31 % 1000) / 10.0 from n;
create index item_name on item(name);
create table sale(item integer references item(id), count integer);
insert into sale select id * 17 % 50000 + 1, id % 13 from item;
select count(*), round(sum(price * count), 2) from sale join item on item.id = sale.item;
select name, sum(count) from sale join item on item.id = sale.item group by name order by 2 desc, 1 limit 20;
update item set name = upper(name) where id % 3 = 0;
delete from sale where count < 3;
select substr(name, 1, 6), count(*) from item group by 1 order by 1;
select json_group_array(json_object('id', id, 'price', price)) from item where id < 50;
vacuum;
pragma integrity_check;
"""


def sqlite3(folder, start):
    with open(os.path.join(folder, "script.sql"), "w", encoding="ascii") as file:
        file.write(SQL)
    return finish(start(["sqlite3", "shop.db", ".read script.sql"]))


def _compile(source, *compiler):
    def program(folder, start):
        result = finish(start([*compiler, "-O2", "-c", os.path.join(ROOT, "tests/targets", source), "-o", "out.o"]))
        with open(os.path.join(folder, "out.o"), "rb") as file:
            result["out.o"] = file.read()
        return result
    return program


def redis(folder, start, name="redis"):
    """redis-server under redis-benchmark, then a fixed script whose answers are compared. `name`: valkey for its fork."""
    socket = os.path.join(folder, "redis.sock")

    def client(program, *arguments, text=None):
        return subprocess.run([program, "-s", socket, *arguments], input=text, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, env=environment(folder), cwd=folder, timeout=LIMIT_SECONDS,
                              check=False).stdout

    server = start([f"{name}-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder,
                    "--enable-debug-command", "yes"])
    wait_until(lambda: client(f"{name}-cli", "ping").strip() == "PONG", f"{name} answers")
    benchmark = client(f"{name}-benchmark", "-n", "5000", "-r", "10000", "-d", "100", "-q",
                       "-t", "ping,set,get,incr,lpush,lrange_100,sadd,hset,zadd,mset")
    script = ["flushall", "config set maxmemory-policy noeviction"]
    script += [f"rpush list{i % 50} value-{i}-{'x' * (i % 300)}" for i in range(3000)]
    script += [f"hset hash{i % 20} field{i} {i * i}" for i in range(3000)]
    script += ["debug digest", "dbsize", "lrange list7 0 -1", "hlen hash3", "strlen none"]
    answers = client(f"{name}-cli", text="\n".join(script) + "\n")
    client(f"{name}-cli", "shutdown", "nosave")
    return {"status": server.wait(LIMIT_SECONDS), "answers": answers,
            "benchmark": sorted(set(re.findall(r"^([A-Z_]+).*: ", benchmark.replace("\r", "\n"), re.MULTILINE)))}


def valkey(folder, start):
    return redis(folder, start, "valkey")


def postgres(folder, start):
    """initdb, a server, pgbench with a fixed seed and number of transactions, sums of its tables; as nobody."""
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    work = os.path.join(folder, "pg")
    os.mkdir(work)
    shutil.chown(work, 65534, 65534)
    data = os.path.join(work, "data")

    def sql(text):
        return subprocess.run([f"{POSTGRES}/psql", "-h", work, "-U", "nobody", "-AtX", "-d", "postgres", "-c", text],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(folder),
                              check=False).stdout.strip()

    initdb = finish(start([*as_nobody, f"{POSTGRES}/initdb", "-D", data, "-U", "nobody", "--no-sync", "-A", "trust",
                           "--no-instructions"], cwd=work))
    server = start([*as_nobody, f"{POSTGRES}/postgres", "-D", data, "-k", work, "-h", "", "-F"], cwd=work)
    wait_until(lambda: sql("select 1") == "1", "PostgreSQL answers")
    connect = ["-h", work, "-U", "nobody", "postgres"]
    fill = start([f"{POSTGRES}/pgbench", "-i", "-s", "1", *connect], cwd=work).wait(LIMIT_SECONDS)
    load = finish(start([f"{POSTGRES}/pgbench", "-c", "4", "-j", "2", "-t", "250", "--random-seed=1", *connect],
                        cwd=work))
    sums = sql("select sum(abalance), count(*) from pgbench_accounts") + " " + sql(
        "select sum(delta), count(*) from pgbench_history")
    with open(os.path.join(data, "postmaster.pid"), encoding="ascii") as file:
        os.kill(int(file.readline()), 2)  # SIGINT: fast shutdown
    status = server.wait(LIMIT_SECONDS)
    shutil.rmtree(work)
    return {"initdb": initdb, "fill": fill, "load": load["status"], "sums": sums, "server": status,
            "transactions": re.findall(r"transactions actually processed: .*", load["stdout"])}

PAGE = """<!doctype html><body style="margin: 0">
<p>heaptap</p><canvas id="canvas" width="200" height="100"></canvas>
<script>
  const texts = Array.from({length: 100000}, (_, i) => "text " + i);
  const context = document.getElementById("canvas").getContext("2d");
  context.fillRect(0, 0, new Set(texts).size / 1000, 50);
</script>
"""


def firefox(folder, start):
    """A screenshot of a page, without a display. Firefox wraps getenv under its own lock."""
    page, picture, profile = (os.path.join(folder, name) for name in ("page.html", "picture.png", "profile"))
    with open(page, "w", encoding="ascii") as file:
        file.write(PAGE)
    os.mkdir(profile)
    status = start(["firefox-esr", "--headless", "--no-remote", "--profile", profile, "--window-size", "400,300",
                    "--screenshot", picture, f"file://{page}"]).wait(LIMIT_SECONDS)
    with open(picture, "rb") as file:
        return {"status": status, "picture": file.read()}


PHP = """
$document = new DOMDocument();
$root = $document->appendChild($document->createElement("items"));
for ($i = 0; $i < 20000; $i++) $root->appendChild($document->createElement("item", "text $i"));
$xml = simplexml_load_string($document->saveXML());
echo count($xml->item), " ", $xml->item[19999], " ", md5($xml->asXML()), " ", extension_loaded("pdo") ? "pdo" : "", "\\n";
"""


PROGRAMS = {
    "w": w,
    "ls": _once("ls", "-laR", "/usr/lib/python3"),
    "python3": _once("/usr/bin/python3", "-c", PYTHON),
    "sqlite3": sqlite3,
    "gcc": _compile("depth.c", "gcc"),
    "redis": redis,
    "clang": _compile("cpp_program.cc", "clang++", "-std=c++20"),
    "postgres": postgres,
}

# Installed by scripts/bootstrap programs.
LARGE_PROGRAMS = {
    "firefox": firefox,
    "php": _once("php", "-r", PHP),  # opens its modules with RTLD_DEEPBIND
}


def run(name, folder, start):
    """Runs one program of this file; returns its result and its seconds."""
    return run_function({**PROGRAMS, **LARGE_PROGRAMS}[name], folder, start)


def run_function(program, folder, start):
    """Runs a program in a new folder below `folder`, always with the same name; returns its result and its seconds."""
    where = os.path.join(folder, "work")
    shutil.rmtree(where, ignore_errors=True)
    os.mkdir(where)
    os.chmod(where, 0o755)
    begun = time.monotonic()
    try:
        result = program(where, lambda command, **options: start(command, **{"cwd": where, **options}))
        return result, time.monotonic() - begun
    finally:
        shutil.rmtree(where, ignore_errors=True)
