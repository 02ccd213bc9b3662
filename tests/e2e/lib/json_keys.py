# SPDX-License-Identifier: Apache-2.0
"""The keys of a JSON document that two allocators print, by which a program finds its values."""


def leaves(value, path=""):
    """{dotted name: kind of value} of all leaves. Items of a list are all alike, which is checked; arenas, whose keys
    are numbers, count as one."""
    if isinstance(value, dict) and value:
        found = {}
        for key, inner in value.items():
            found |= leaves(inner, f"{path}.{'<arena>' if key.isdecimal() or key == 'merged' else key}".lstrip("."))
        return found
    if isinstance(value, list) and value:
        items = [leaves(inner, path + "[]") for inner in value]
        assert all(item == items[0] for item in items), path
        return items[0]
    if isinstance(value, bool):
        return {path: "boolean"}
    return {path: "number" if isinstance(value, (int, float)) else type(value).__name__}
