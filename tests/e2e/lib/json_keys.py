# SPDX-License-Identifier: Apache-2.0
"""The keys of a JSON document, to compare the documents of two allocators."""


def leaves(value, path=""):
    """{dotted name: kind of value} of all leaves. All items of a list must be alike; arenas, whose keys are numbers, count
    as one."""
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
