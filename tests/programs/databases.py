# SPDX-License-Identifier: Apache-2.0
"""Databases. Known lines of their logs are removed, so that any other line is noticed."""

import os

import programs
from program import client, hidden, outcome, program, release, stop, wait_ready

program("sqlite3")(programs.sqlite3)
program("postgresql")(programs.postgres)

# Both are linked with jemalloc and call functions of it that other allocators do not have, so a preloaded malloc sees blocks
# that are not its own, or jemalloc does.
REDIS_8 = {"tcmalloc": "ends there: memory for Lua is from jemalloc's mallocx, and tcmalloc does not know its size"}
VALKEY = dict.fromkeys(("tcmalloc", "mimalloc"), "ends there: it frees all blocks with jemalloc's sdallocx")
program("redis-server", not_over=REDIS_8 if release() >= 13 else {})(programs.redis)
program("valkey-server", since=13, not_over=VALKEY)(programs.valkey)

LOG_LINE = r"^\d{4}-\d\d-\d\d .*\n"

SQL = """
create table item(id int primary key, name varchar(40), price decimal(10, 2), key(name)) engine=innodb;
insert into item select seq, concat('item ', seq * 7919 % 20000), (seq * 31 % 1000) / 10 from seq_1_to_20000;
create table sale(item int, count int) engine=innodb;
insert into sale select id * 17 % 20000 + 1, id % 13 from item;
select count(*), sum(price * count) from sale join item on item.id = sale.item;
select name, sum(count) n from sale join item on item.id = sale.item group by name order by n desc, name limit 20;
update item set name = upper(name) where id % 3 = 0;
delete from sale where count < 3;
select left(name, 6) n, count(*) from item group by n order by n;
select json_arrayagg(id) from item where id < 50;
check table item, sale;
"""


@program("mariadb-server")
def mariadb(folder, start):
    """A new database, many clients at once, and the answers to a script."""
    data, path = (os.path.join(folder, name) for name in ("data", "socket"))
    made = outcome(start(["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root", "--skip-test-db",
                          "--auth-root-authentication-method=normal", "--innodb-log-file-size=8M"]), hide=[LOG_LINE])
    server = start(["mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={path}", "--skip-networking",
                    "--user=root", "--innodb-log-file-size=8M"])
    common = ["--no-defaults", f"--socket={path}", "--user=root"]
    wait_ready(server, lambda: "alive" in client(folder, "mariadb-admin", *common, "ping"))
    load = client(folder, "mariadb-slap", *common, "--auto-generate-sql", "--auto-generate-sql-load-type=mixed",
                  "--concurrency=8", "--number-of-queries=800")
    answers = client(folder, "mariadb", *common, "-e", "create database shop")
    answers += client(folder, "mariadb", *common, "shop", text=SQL)
    return {"made": made, "load": hidden(load, r"[\d.]+"), "answers": answers, **stop(server, hide=[LOG_LINE])}
