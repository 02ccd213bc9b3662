# SPDX-License-Identifier: Apache-2.0
"""Pages of profiles, for a browser."""


def run(lab, *arguments):
    """The output of a command that records nothing."""
    session = lab.heaptap(*arguments)
    session.records = False
    session.ends()
    return session.stdout()


def page_of(lab, dump, *arguments):
    path = lab.path("page.html")
    run(lab, "view", *arguments, "-o", path, dump)
    return f"file://{path}"


def address_of(daemon):
    """Of the page that the daemon serves."""
    return daemon.wait_said(r"^heaptap: recording; .* and (http://127\.0\.0\.1:\d+)")[1]


def names(browser):
    return [row[-1] for row in browser.rows()]


def human(size):
    """Bytes as the page shows them."""
    for unit in ("", "K", "M"):
        if size < 1023.5:
            return f"{size:.1f}{unit}" if unit else f"{size:.0f}"
        size /= 1024
    raise ValueError("too large for these tests")


HOSTILE = "<img src=x onerror=document.title='hit'>\"'</script><script>document.title='hit'</script>"


def write_dump(path, paths, library="/usr/bin/x"):
    """A dump with these [(frames, objects, bytes)]."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("heap_v2/1\n")
        total = f"{sum(path[1] for path in paths)}: {sum(path[2] for path in paths)}"
        file.write(f"  t*: {total} [{total}]\n")
        for frames, objects, size in paths:
            file.write(f"@ {' '.join(map(hex, frames))}\n  t*: {objects}: {size} [{objects}: {size}]\n")
        file.write(f"\nMAPPED_LIBRARIES:\n1000-7fff000 r-xp 00000000 00:00 0 {library}\n")
