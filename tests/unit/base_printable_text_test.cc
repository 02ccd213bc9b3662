// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gtest/gtest.h"
#include "userspace/base/printable_text.h"

namespace heaptap::base {
namespace {

TEST(PrintableText, KeepsText) {
  for (const char* text : {"", "plain ~ text", "operator\"\" _x\\", "\u00a0\u00e9\u07ff",
                           "\u0800\u20ac\ud7ff\ue000\uffff", "\U00010000\U0001f600\U0010ffff"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableText, CutsBetweenCharacters) {
  const std::string text = "a\u00e9\u20ac\U0001f600z";
  EXPECT_EQ(CountCharacters(text), 5);
  EXPECT_EQ(FirstCharacters(text, 0), "");
  EXPECT_EQ(FirstCharacters(text, 3), "a\u00e9\u20ac");
  EXPECT_EQ(FirstCharacters(text, 4), "a\u00e9\u20ac\U0001f600");
  EXPECT_EQ(FirstCharacters(text, 5), text);
  EXPECT_EQ(FirstCharacters(text, 6), text);
  EXPECT_EQ(LastCharacters(text, 0), "");
  EXPECT_EQ(LastCharacters(text, 2), "\U0001f600z");
  EXPECT_EQ(LastCharacters(text, 6), text);
  EXPECT_EQ(CountCharacters(""), 0);
  EXPECT_EQ(LastCharacters("", 1), "");
}

TEST(PrintableText, EscapesControlCharacters) {
  EXPECT_EQ(Printable(std::string("a\0b\n\r\t\x1b[31m\x7f", 12)), "a\\000b\\012\\015\\011\\033[31m\\177");
  EXPECT_EQ(Printable("\u0080\u009f"), "\\302\\200\\302\\237");
}

TEST(PrintableText, EscapesWhatIsNoUtf8) {
  // Lone and missing continuations, more than the shortest form, a surrogate, beyond the last character.
  EXPECT_EQ(Printable("\x80z"), "\\200z");
  EXPECT_EQ(Printable("\xc3"), "\\303");
  EXPECT_EQ(Printable("\xe2\x82z"), "\\342\\202z");
  EXPECT_EQ(Printable("\xf0\x9f\x98"), "\\360\\237\\230");
  EXPECT_EQ(Printable("\xc0\xaf"), "\\300\\257");
  EXPECT_EQ(Printable("\xe0\x80\xaf"), "\\340\\200\\257");
  EXPECT_EQ(Printable("\xf0\x80\x80\xaf"), "\\360\\200\\200\\257");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\355\\240\\200");
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\364\\220\\200\\200");
  EXPECT_EQ(Printable("\xf5\x80\x80\x80\xff"), "\\365\\200\\200\\200\\377");
}

TEST(PrintableText, SomeOfMany) {
  EXPECT_EQ(SomeOf({}), "");
  EXPECT_EQ(SomeOf({"b\n", "a"}), "a, b\\012");
  EXPECT_EQ(SomeOf({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(SomeOf({"a", "b", "c", "d", "e"}), "a, b, c and 2 more");
}

}  // namespace
}  // namespace heaptap::base
