# SPDX-License-Identifier: Apache-2.0
"""A client of redis-server (RESP 2) that knows what the server must hold."""

import random
import socket

# Bytes of values: from those within other blocks to those with a mapping of their own.
_LEAST, _MOST = 8, 256 << 10
_HUGE = 20 << 20
KEYS = 1000


class Client:
    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._file = self._socket.makefile("rwb")

    def call(self, *words):
        """The answer: bytes, a number, None or a list; an error is an exception."""
        self._file.write(b"*%d\r\n" % len(words))
        for word in words:
            word = word if isinstance(word, bytes) else str(word).encode()
            self._file.write(b"$%d\r\n%s\r\n" % (len(word), word))
        self._file.flush()
        return self._answer()

    def _answer(self):
        kind, rest = self._read_line()
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"+":
            return rest
        number = int(rest)
        if kind == b":":
            return number
        if number < 0:
            return None
        if kind == b"*":
            return [self._answer() for _ in range(number)]
        return self._file.read(number + 2)[:number]

    def _read_line(self):
        line = self._file.readline()
        assert line.endswith(b"\r\n"), f"the server has closed the connection: {line!r}"
        return line[:1], line[1:-2]

    def close(self):
        self._file.close()
        self._socket.close()


class Load:
    """Values of all sizes come, grow, are replaced and go; each answer is compared."""

    def __init__(self, path, name):
        self._client = Client(path)
        self._random = random.Random(name)
        # {key: (text, bytes)}: the value repeats the text.
        self._values = {}
        self.commands = 0

    def _call(self, *words):
        self.commands += 1
        return self._client.call(*words)

    @staticmethod
    def _value(text, size):
        return (text * (size // len(text) + 1))[:size]

    def _size(self):
        """As many small ones as large ones, by their logarithm."""
        return int(_LEAST * (_MOST / _LEAST) ** self._random.random())

    def _set(self, key, size):
        text = b"%d of %s " % (self.commands, key.encode())
        assert self._call("set", key, self._value(text, size)) == b"OK"
        self._values[key] = text, size

    def _grow(self, key):
        text, size = self._values[key]
        grown = size + self._size() // 2
        assert self._call("append", key, self._value(text, grown)[size:]) == grown
        self._values[key] = text, grown

    def _check(self, key):
        found = self._call("get", key)
        if key in self._values:
            assert found == self._value(*self._values[key]), f"{key} is damaged"
        else:
            assert found is None

    def step(self):
        """One command."""
        key = f"key {self._random.randrange(KEYS)}"
        what = self._random.randrange(8)
        if what < 3:
            self._set(key, self._size())
        elif what == 3 and key in self._values:
            self._grow(key)
        elif what == 4:
            assert self._call("del", key) == (self._values.pop(key, None) is not None)
        else:
            self._check(key)

    def huge(self):
        """A value with a mapping of its own comes, grows and goes."""
        self._set("huge", _HUGE)
        self._grow("huge")
        self._check("huge")
        self._call("del", "huge")
        del self._values["huge"]

    def fork(self):
        """The server writes its data in a child. True: it could begin."""
        return self._call("bgsave") == b"Background saving started"

    def forks(self):
        """Whether such a child runs. Fails if the last one could not write all."""
        lines = self._call("info", "persistence").split(b"\r\n")
        assert b"rdb_last_bgsave_status:ok" in lines
        return b"rdb_bgsave_in_progress:1" in lines

    def bytes(self):
        """Of all values."""
        return sum(size for _, size in self._values.values())

    def check_all(self):
        assert self._call("dbsize") == len(self._values)
        for key in self._values:
            self._check(key)

    def end(self):
        """Frees all values, and closes the connection."""
        assert self._call("flushall", "sync") == b"OK"
        self._client.close()
