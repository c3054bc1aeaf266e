#include "core/printable.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lyceum {
namespace {

TEST(Printable, LeavesTextAlone) {
  for (const char* text :
       {"", "plain text", "Käse, 你好, 🙂, … – ·", "\xC2\xA0no-break", "C:\\x1b", "עברית العربية"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_EQ(printable_lines(text), text);
  }
}

TEST(Printable, ShowsWhatWouldActOnATerminal) {
  EXPECT_EQ(printable("\x1b[2J\x1b]0;title\x07"), "\\x1b[2J\\x1b]0;title\\x07");
  EXPECT_EQ(printable(std::string("a\0b\x08\x7f", 5)), "a\\x00b\\x08\\u007f");
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J\xC2\x85\xC2\x80"),
            "\\u009b2J\\u0085\\u0080")
      << "C1: CSI and NEL";
  EXPECT_EQ(printable("\xE2\x80\xAE"
                      "cod.exe"),
            "\\u202ecod.exe");
  EXPECT_EQ(printable("\xE2\x80\xAA\xE2\x80\xAE\xE2\x81\xA6\xE2\x81\xA9"), "\\u202a\\u202e\\u2066\\u2069");
  EXPECT_EQ(printable("\xE2\x80\xA8\xE2\x80\xA9"), "\\u2028\\u2029") << "separators of lines and paragraphs";
  EXPECT_EQ(printable("\xE2\x80\xA9\xE2\x80\xAF\xE2\x81\xA5\xE2\x81\xAA"),
            "\\u2029\xE2\x80\xAF\xE2\x81\xA5\xE2\x81\xAA")
      << "their neighbours are text";
}

TEST(Printable, ShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("caf\xE9"), "caf\\xe9");
  EXPECT_EQ(printable("\x9B"
                      "2J"),
            "\\x9b2J");
  EXPECT_EQ(printable("\xED\xA0\x80\xF4\x90\x80\x80\xC0\xAF\xE2\x80"),
            "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80\\xc0\\xaf\\xe2\\x80");
}

TEST(Printable, KeepsTheMeaningOfJson) {
  const std::string json = "{\"text\":\"a\x7f\xC2\x80\xC2\x9F\xE2\x80\xAE\"}";
  EXPECT_EQ(printable_lines(json), "{\"text\":\"a\\u007f\\u0080\\u009f\\u202e\"}");
}

TEST(Printable, HasOneLineUnlessLinesAreMeant) {
  EXPECT_EQ(printable("a\nb\tc\r\nd"), "a b c  d");
  EXPECT_EQ(printable_lines("a\nb\tc\rd\x1b"), "a\nb\tc d\\x1b");
}

TEST(Printable, DoesNothingTheSecondTime) {
  std::string every;
  for (int c = 0; c < 256; ++c) every += static_cast<char>(c);
  EXPECT_EQ(printable(printable(every)), printable(every));
  EXPECT_EQ(printable_lines(printable_lines(every)), printable_lines(every));
}

TEST(Printable, IsWhatErrorsSay) {
  const auto said = [](ExitCode code) {
    try {
      fail(code, "{}: bad\nend", "\x1b[31mfile\xE9");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(said(ExitCode::bad_input), "\\x1b[31mfile\\xe9: bad end");
  EXPECT_EQ(said(ExitCode::failed), "\\x1b[31mfile\\xe9: bad\nend");
}

}  // namespace
}  // namespace lyceum
