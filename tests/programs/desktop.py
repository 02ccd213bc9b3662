# SPDX-License-Identifier: Apache-2.0
"""Browsers, office programs and editors, all without a display."""

import os
import zipfile

import programs
from program import client, outcome, program, write

program("firefox-esr")(programs.firefox)

# Browsers and office programs print messages with times and PIDs that depend on the machine.
OWN_MESSAGES = [r"^\[\d+:\d+:.*\n", r"^(?:Fontconfig|dbind-WARNING|libEGL|MESA).*\n",
                # A message of the start script about free space in /dev/shm.
                r"^/usr/bin/chromium: \d+: \[: .*\n",
                # Chromium's malloc is its own, so a guest before it takes no samples, and says so.
                r"^<heaptap>: libheaptap-guest.so takes no samples: .*\n"]


@program("chromium")
def chromium(folder, start):
    """A page's final state and a screenshot. As root the browser has no sandbox."""
    page = write(folder, "page.html", programs.PAGE.replace("context.fillRect", """
  document.body.append(new Set(texts).size + " texts");
  context.fillRect"""))
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               f"--user-data-dir={folder}/profile", "--window-size=400,300"]
    text = outcome(start([*browser, "--dump-dom", f"file://{page}"]), hide=OWN_MESSAGES)
    picture = outcome(start([*browser, f"--screenshot={folder}/picture.png", f"file://{page}"]), folder,
                      ["picture.png"], hide=[*OWN_MESSAGES, r"^\d+ bytes written.*"])
    return {"text": text, "picture": picture}


def convert(start, file, *to):
    return outcome(start(["soffice", "--headless", "--norestore", "--nolockcheck", "--convert-to", *to, file]),
                   hide=OWN_MESSAGES)


@program("libreoffice-calc-nogui", "libreoffice calc")
def calc(folder, start):
    """Converts a table with formulas to Excel's format."""
    write(folder, "table.csv", "".join(f"{i},{i * 7919 % 1000},=SUM(A1:A{i + 1}),text {i}\n" for i in range(50)))
    made = convert(start, "table.csv", "xlsx")
    with zipfile.ZipFile(os.path.join(folder, "table.xlsx")) as table:
        return {"made": made, **{name: table.read(f"xl/{name}.xml") for name in ("worksheets/sheet1", "sharedStrings")}}


@program("libreoffice-writer-nogui", "libreoffice writer")
def writer(folder, start):
    """Converts a document with tables to PDF; compares its text as another program reads it."""
    rows = "".join(f"<tr><td>{i}</td><td>{'heap ' * (i % 9)}</td></tr>" for i in range(20))
    write(folder, "document.html", f"<h1>Heap</h1><p>{'Text. ' * 500}</p><table>{rows}</table>")
    made = convert(start, "document.html", "pdf:writer_web_pdf_Export")
    text = client(folder, "gs", "-q", "-dNOPAUSE", "-dBATCH", "-sDEVICE=txtwrite", "-o", "-", "document.pdf")
    return {"made": made, "text": text}


@program("vim")
def vim(folder, start):
    write(folder, "text", "".join(f"line {i} {'word ' * (i % 20)}\n" for i in range(5000)))
    write(folder, "script", r"""
syntax on
%s/\v(\d+) (word)/\2 \1/ge
g/7/m0
%!sort -r
let @a = join(map(range(20000), 'printf("%d", v:val * 31 % 20011)'), ',')
$put a
undo
redo
w! out
qa!
""")
    return outcome(start(["vim", "-Nes", "-u", "NONE", "-i", "NONE", "-S", "script", "text"]), folder, ["out"])


@program("emacs-nox")
def emacs(folder, start):
    write(folder, "script.el", r"""
;;; -*- lexical-binding: t -*-
(defun fill (count)
  (let ((table (make-hash-table :test 'equal)))
    (dotimes (i count) (puthash (number-to-string (% (* i 7919) 100003)) (make-string (% i 60) ?x) table))
    table))
(with-temp-buffer
  (maphash (lambda (key value) (insert key " " value "\n")) (fill 5000))
  (sort-lines nil (point-min) (point-max))
  (goto-char (point-min))
  (while (re-search-forward "\\([0-9]\\)\\([0-9]\\)" nil t) (replace-match "\\2\\1"))
  (write-region nil nil "out" nil 'quiet))
(garbage-collect)
(princ (format "%d\n" (hash-table-count (fill 20000))))
(princ (shell-command-to-string "echo child"))
""")
    compiled = outcome(start(["emacs", "-Q", "--batch", "-f", "batch-byte-compile", "script.el"]))
    ran = outcome(start(["emacs", "-Q", "--batch", "-l", "script.elc"]), folder, ["out"])
    return {"compiled": compiled, "ran": ran}
