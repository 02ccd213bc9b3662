# SPDX-License-Identifier: Apache-2.0
"""Pure Python that allocates in many ways; for the differential test."""

import ast, collections, functools, heapq, re

class Node:
    def __init__(self, depth):
        self.below = [Node(depth - 1) for _ in range(2)] if depth else []
    def count(self):
        return 1 + sum(node.count() for node in self.below)

@functools.lru_cache(maxsize=500)
def ways(amount, largest):
    if amount == 0:
        return 1
    return sum(ways(amount - coin, coin) for coin in (1, 2, 5, 10, 20, 50) if coin <= min(amount, largest))

def queens(size, row=0, columns=frozenset(), rising=frozenset(), falling=frozenset()):
    if row == size:
        return 1
    return sum(queens(size, row + 1, columns | {c}, rising | {row + c}, falling | {row - c}) for c in range(size)
               if c not in columns and row + c not in rising and row - c not in falling)

def primes(limit):
    sieve = bytearray(b"\x01") * limit
    for i in range(2, int(limit ** 0.5) + 1):
        if sieve[i]:
            sieve[i * i::i] = bytes(len(range(i * i, limit, i)))
    return [i for i in range(2, limit) if sieve[i]]

def deep(level):
    return [] if level == 0 else [deep(level - 1)]

def words():
    text = " ".join(f"word{i * 7919 % 1000}-{i % 13}" for i in range(20000))
    return collections.Counter(re.findall(r"[a-z]+\d+(?=-1)", text)).most_common(3)

def raises(level):
    if level == 0:
        raise ValueError(level)
    try:
        raises(level - 1)
    except ValueError as error:
        raise KeyError(level) from error

print(Node(12).count(), ways(300, 50), queens(6), len(primes(20000)), 3 ** 5000 % 1000007, words())
print(len(ast.dump(ast.parse("x = [i ** 2 for i in range(10) if i % 2]\n" * 200))), repr(deep(200))[:3])
print(sorted(("%05d" % (i * 7919 % 10007) for i in range(10007)), key=lambda s: s[::-1])[:3])
heap = []
for i in range(5000):
    heapq.heappush(heap, (i * 31 % 977, str(i)))
print([heapq.heappop(heap) for _ in range(2)])
try:
    raises(50)
except KeyError as error:
    print(error)
