# SPDX-License-Identifier: Apache-2.0
"""Servers under load. The clients' results are compared."""

import hashlib
import http.server
import os
import re
import socket
import threading

from program import client, digest, free_port, listens, outcome, program, stop, wait_ready, write

PAGE = "".join(f"<p>{i} {'heap' * (i % 50)}</p>\n" for i in range(500))
# Parallel connections of one client, each used several times.
REQUESTS = 300


def load(folder, path):
    """The answers of an HTTP server on a Unix socket to curl, REQUESTS times."""
    said = client(folder, "curl", "-sSZ", "--no-progress-meter", "--parallel-max", "20", "--compressed",
                  "--unix-socket", path, "-o", "page.#1", f"http://localhost/page.html?[1-{REQUESTS}]")
    return {"client": said, "pages": sorted({digest(folder, f"page.{i}") for i in range(1, REQUESTS + 1)})}


@program("nginx-light")
def nginx(folder, start):
    write(folder, "www/page.html", PAGE)
    path = os.path.join(folder, "socket")
    conf = write(folder, "nginx.conf", f"""
        daemon off; user root; worker_processes 2; pid {folder}/pid; error_log stderr;
        events {{ }}
        http {{ access_log off; gzip on; gzip_types *;
                client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
                uwsgi_temp_path {folder}; scgi_temp_path {folder};
                server {{ listen unix:{path}; root {folder}/www; }} }}""")
    server = start(["nginx", "-e", "stderr", "-c", conf])
    wait_ready(server, lambda: listens(path))
    return {**load(folder, path), **stop(server)}


@program("apache2-bin")
def apache2(folder, start):
    write(folder, "www/page.html", PAGE)
    port = free_port()
    modules = "".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"
                      for name in ("mpm_event", "authz_core", "deflate", "filter"))
    conf = write(folder, "apache.conf", f"""{modules}
        ServerName localhost
        Listen 127.0.0.1:{port}
        PidFile {folder}/pid
        DefaultRuntimeDir {folder}
        DocumentRoot {folder}/www
        ErrorLog {folder}/errors
        User www-data
        Group www-data
        StartServers 2
        SetOutputFilter DEFLATE""")
    server = start(["apache2", "-DFOREGROUND", "-f", conf])
    wait_ready(server, lambda: listens(port))
    answer = client(folder, "ab", "-q", "-n", str(REQUESTS), "-c", "8", f"http://127.0.0.1:{port}/page.html")
    page = client(folder, "curl", "-sS", "--compressed", f"http://127.0.0.1:{port}/page.html")
    return {"page": page, "load": re.findall(r"^(?:Complete|Failed|HTML).*", answer, re.MULTILINE), **stop(server)}


@program("haproxy")
def haproxy(folder, start):
    path = os.path.join(folder, "socket")
    write(folder, "page", PAGE)
    conf = write(folder, "haproxy.cfg", f"""
global
    nbthread 2
    tune.bufsize 131072
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 10s
frontend front
    bind unix@{path}
    default_backend back
frontend inner
    bind unix@{folder}/inner
    http-request return status 200 content-type text/html file {folder}/page
backend back
    server one unix@{folder}/inner
""")
    server = start(["haproxy", "-db", "-f", conf])
    wait_ready(server, lambda: listens(path))
    return {**load(folder, path), **stop(server)}


@program("memcached")
def memcached(folder, start):
    path = os.path.join(folder, "socket")
    server = start(["memcached", "-u", "root", "-t", "4", "-s", path])
    wait_ready(server, lambda: listens(path))
    answer = hashlib.sha256()
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)
        with one.makefile("rwb") as stream:
            for i in range(20000):
                value = b"x" * (i * 7919 % 2000)
                stream.write(b"set key%d 0 0 %d noreply\r\n%s\r\n" % (i, len(value), value))
            for i in range(0, 20000, 5):
                stream.write(b"get key%d\r\n" % i)
                stream.flush()
                while (line := stream.readline()) != b"END\r\n":
                    answer.update(line)
    return {"answer": answer.hexdigest(), **stop(server)}


@program("dnsmasq-base")
def dnsmasq(folder, start):
    port = free_port()
    hosts = write(folder, "hosts", "".join(f"10.1.{i // 250}.{i % 250 + 1} host{i}.test\n" for i in range(5000)))
    queries = write(folder, "queries", "".join(f"host{i}.test A +short\n" for i in range(0, 5000, 10)))
    server = start(["dnsmasq", "-k", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", f"--addn-hosts={hosts}",
                    "--bind-interfaces", "--listen-address=127.0.0.1", f"--port={port}", "--user=root", "--group=root",
                    "--pid-file=", "--log-facility=-"])
    wait_ready(server, lambda: listens(port))
    answers = client(folder, "dig", "@127.0.0.1", "-p", str(port), "-f", queries)
    return {"answers": answers, **stop(server, hide=[r"^dnsmasq(?:\[\d+\])?: .*"])}


@program("mosquitto")
def mosquitto(folder, start):
    """A thousand messages that are queued for a subscriber."""
    port = free_port()
    conf = write(folder, "mosquitto.conf", f"""
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
user root
log_type error
""")
    server = start(["mosquitto", "-c", conf])
    wait_ready(server, lambda: listens(port))
    common = ["-h", "127.0.0.1", "-p", str(port), "-t", "heap", "-q", "1"]
    subscriber = ["mosquitto_sub", *common, "-i", "reader", "-c"]
    said = client(folder, *subscriber, "-E")
    said += client(folder, "mosquitto_pub", *common, "-l", text="".join(f"{i} {'x' * (i % 500)}\n"
                                                                       for i in range(1000)))
    return {"said": said, "messages": client(folder, *subscriber, "-C", "1000"), **stop(server, hide=[r"^\d+: "])}


@program("openssh-server")
def sshd(folder, start):
    """Keys, a server and a client: all three with heaptap."""
    os.makedirs("/run/sshd", exist_ok=True)
    port = free_port()
    for name in ("host", "user"):
        keygen = outcome(start(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", name]))
    os.rename(os.path.join(folder, "user.pub"), os.path.join(folder, "authorized"))
    conf = write(folder, "sshd_config", f"""
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
StrictModes no
UsePAM no
PidFile none
PermitRootLogin yes
LogLevel QUIET
""")
    server = start(["/usr/sbin/sshd", "-D", "-e", "-f", conf])
    wait_ready(server, lambda: listens(port))
    session = outcome(start(["ssh", "-F", "none", "-i", "user", "-p", str(port), "-o", "StrictHostKeyChecking=no",
                             "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "root@127.0.0.1",
                             "seq 200000"]))
    session["stdout"] = hashlib.sha256(session["stdout"].encode()).hexdigest()
    return {"keygen": keygen, "session": session, **stop(server)}


@program("openssl")
def openssl(folder, start):
    """A certificate, a TLS server and a client's sessions with it."""
    port = free_port()
    made = outcome(start(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key", "-out", "cert",
                          "-subj", "/CN=localhost"]), hide=[r"^[.+*-]+$"])
    verified = outcome(start(["openssl", "verify", "-CAfile", "cert", "cert"]))
    server = start(["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-key", "key", "-cert", "cert", "-WWW",
                    "-quiet"])
    wait_ready(server, lambda: listens(port))
    write(folder, "page.html", PAGE)
    pages = {client(folder, "curl", "-sS", "--cacert", "cert", "--resolve", f"localhost:{port}:127.0.0.1",
                    f"https://localhost:{port}/page.html") for _ in range(20)}
    return {"made": made, "verified": verified, "pages": pages, **stop(server, hide=[r"^FILE:.*"])}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write((self.path + PAGE).encode())

    def log_message(self, *_):
        pass


@program("curl")
def curl(folder, start):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        process = start(["curl", "-sSZ", "--no-progress-meter", "-o", "got.#1",
                         f"http://127.0.0.1:{server.server_port}/[1-200]"])
        result = outcome(process, folder, [f"got.{i}" for i in range(1, 201)])
        server.shutdown()
    return result
