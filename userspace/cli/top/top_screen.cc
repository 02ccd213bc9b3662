// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/top/top_screen.h"

#define NCURSES_NOMACROS
#include <langinfo.h>
#include <locale.h>
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/base/printable_text.h"

namespace heaptap::cli {
namespace {

// How long the rest of a key's bytes may take after Esc, on a slow line.
constexpr int kEscapeMilliseconds = 50;

bool IsUtf8() { return strcmp(nl_langinfo(CODESET), "UTF-8") == 0; }

std::optional<int> ToKey(int key) {
  switch (key) {
    case ERR:
    case KEY_RESIZE:
      return std::nullopt;
    case KEY_UP:
      return kKeyUp;
    case KEY_DOWN:
      return kKeyDown;
    case KEY_LEFT:
      return kKeyLeft;
    case KEY_RIGHT:
      return kKeyRight;
    case KEY_PPAGE:
      return kKeyPageUp;
    case KEY_NPAGE:
      return kKeyPageDown;
    case KEY_HOME:
      return kKeyHome;
    case KEY_END:
      return kKeyEnd;
    case KEY_ENTER:
    case '\r':
      return kKeyEnter;
    case KEY_BACKSPACE:
    case '\b':
      return kKeyBackspace;
    default:
      return key < KEY_MIN ? key : 0;
  }
}

attr_t ToAttribute(TopLine::Style style) {
  switch (style) {
    case TopLine::Style::kTitle:
      return A_BOLD;
    case TopLine::Style::kSelected:
      return A_REVERSE;
    case TopLine::Style::kMessage:
      return A_BOLD;
    case TopLine::Style::kPlain:
      break;
  }
  return A_NORMAL;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TopScreen>> TopScreen::Open() {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
    return absl::FailedPreconditionError("top: this is no terminal; use heaptap top --once");
  }
  setlocale(LC_CTYPE, "");
  set_escdelay(kEscapeMilliseconds);
  const char* const set = getenv("TERM");
  const std::string kind = set == nullptr ? "" : set;
  // Unlike initscr, newterm returns if the terminal is not known. It takes a dumb one, which has no cursor to move.
  SCREEN* const terminal = kind == "dumb" ? nullptr : newterm(nullptr, stdout, stdin);
  if (terminal == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("top: the terminal ", base::Printable(kind),
                                                      " cannot be drawn on; set TERM, or use heaptap top --once"));
  }
  set_term(terminal);
  cbreak();
  noecho();
  nonl();
  keypad(stdscr, TRUE);
  curs_set(0);
  return std::unique_ptr<TopScreen>(new TopScreen(terminal));
}

TopScreen::~TopScreen() {
  endwin();
  delscreen(static_cast<SCREEN*>(terminal_));
}

size_t TopScreen::width() const { return static_cast<size_t>(std::max(getmaxx(stdscr), 1)); }

void TopScreen::Draw(TopModel& model) const {
  const auto height = static_cast<size_t>(std::max(getmaxy(stdscr), 1));
  const std::vector<TopLine> lines = model.Lines(width(), height, IsUtf8());
  erase();
  for (size_t i = 0; i < lines.size(); i++) {
    attrset(ToAttribute(lines[i].style));
    mvaddstr(static_cast<int>(i), 0, lines[i].text.c_str());
  }
  attrset(A_NORMAL);
  refresh();
}

std::optional<int> TopScreen::WaitForKey(absl::Duration limit) const {
  wtimeout(stdscr, static_cast<int>(std::max<int64_t>(absl::ToInt64Milliseconds(limit), 0)));
  return ToKey(wgetch(stdscr));
}

}  // namespace heaptap::cli
