# SPDX-License-Identifier: Apache-2.0
"""Tables of text, as all benchmarks print them."""


def print_table(title, columns, rows):
    """Prints rows of (name, values), right-aligned except for the names."""
    cells = [["", *columns]] + [[name, *map(str, values)] for name, values in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    print(f"\n{title}\n")
    for row in cells:
        print("  " + "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))), flush=True)
