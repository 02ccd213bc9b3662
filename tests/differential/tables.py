# SPDX-License-Identifier: Apache-2.0
"""Compares tables of results of jemalloc and heaptap, cell by cell, and judges the differences by a list of known ones. An
unknown difference is a fault; so is a known difference that does not occur, so that the list stays true."""

import collections
import re

NO_RESULT = "no result"

# title: of the pair of tables.
Cell = collections.namedtuple("Cell", "name trial jemalloc heaptap title")


class Known:
    """An intended difference. reason: one sentence. name, trial, jemalloc, heaptap, title: regular expressions that must
    match these completely in a Cell; a missing one matches all. equal_after: a function that makes both results equal."""

    def __init__(self, reason, name=".*", trial=".*", jemalloc=".*", heaptap=".*", title=".*", equal_after=None):
        self.reason = reason
        self._equal_after = equal_after
        patterns = (name, trial, jemalloc, heaptap, title)
        self.text = " ".join(f"{field}={pattern!r}" for field, pattern in zip(Cell._fields, patterns) if pattern != ".*")
        self._patterns = [re.compile(pattern, re.DOTALL) for pattern in patterns]

    def explains(self, cell):
        if not all(pattern.fullmatch(text) for pattern, text in zip(self._patterns, cell)):
            return False
        return self._equal_after is None or self._equal_after(cell.jemalloc) == self._equal_after(cell.heaptap)


class Comparison:
    """Tables are {name: {trial: result}}. Call add() for each pair of tables, then look at the rest."""

    def __init__(self, known, is_sample=False):
        """is_sample: only a part is compared, so known differences may not occur."""
        self._known = known
        self._is_sample = is_sample
        self._seen = {id(entry): 0 for entry in known}
        self.names = set()
        self.equal = 0
        self.unexplained = []  # Cells
        self.explained = collections.defaultdict(list)  # reason: Cells

    def add(self, title, jemalloc, heaptap):
        for name in {**jemalloc, **heaptap}:
            self.names.add(name)
            first, second = jemalloc.get(name, {}), heaptap.get(name, {})
            for trial in {**first, **second}:
                self._judge(Cell(name, trial, first.get(trial, NO_RESULT), second.get(trial, NO_RESULT), title))

    def _judge(self, cell):
        if cell.jemalloc == cell.heaptap:
            self.equal += 1
            return
        for entry in self._known:
            if entry.explains(cell):
                self._seen[id(entry)] += 1
                self.explained[entry.reason].append(cell)
                return
        self.unexplained.append(cell)

    @property
    def unseen(self):
        """Known differences that did not occur, although everything was compared."""
        return [] if self._is_sample else [entry for entry in self._known if not self._seen[id(entry)]]

    @property
    def passes(self):
        return not self.unexplained and not self.unseen

    def summary(self, what):
        """Lines for the terminal. what: the word for a name."""
        count = sum(len(cells) for cells in self.explained.values())
        yield (f"{len(self.names)} {what}, {self.equal + count + len(self.unexplained)} results: {self.equal} equal, "
               f"{count} differ and are explained, {len(self.unexplained)} differ and are not")
        for reason, cells in sorted(self.explained.items(), key=lambda item: -len(item[1])):
            yield f"  {len(cells):6}  {reason}"
        for entry in self.unseen:
            yield f"  not seen: {entry.reason} ({entry.text})"

    def details(self):
        """Every difference, unexplained ones first."""
        for cell in self.unexplained:
            yield from _lines("NOT EXPLAINED", cell)
        for reason, cells in self.explained.items():
            for cell in cells:
                yield from _lines(reason, cell)


def _lines(reason, cell):
    yield f"{cell.name} | {cell.trial} | {cell.title}: {reason}"
    yield f"    jemalloc: {cell.jemalloc}"
    yield f"    heaptap:  {cell.heaptap}"
