#include "launcher/output/traceback_lines.hpp"

#include <string>

#include <doctest/doctest.h>

using dlaunch::launcher::TracebackLines;

namespace {

/// How many pieces of the text completed such a line's words.
int found(const std::string& text, std::size_t piece) {
  TracebackLines lines;
  int times = 0;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    if (lines.feed(std::string_view(text).substr(at, piece))) ++times;
  }
  return times;
}

void check(const std::string& text, int times) {
  CAPTURE(text);
  // In larger pieces two may complete together.
  const std::size_t most = times > 1 ? 20 : text.size();
  for (std::size_t piece = 1; piece <= most; ++piece) {
    CAPTURE(piece);
    CHECK(found(text, piece) == times);
  }
}

const std::string words = "Traceback (most recent call last):";

}  // namespace

TEST_CASE("a traceback's first line, however the bytes come") {
  check(words + "\n", 1);
  check(words, 1);
  check("some text\n" + words + "\n  File \"a.py\", line 1\nValueError: x\n", 1);
  check("Trace\nTTrace\n" + words + "\r\n", 1);
  check("a\n" + words + "\nValueError\n\nDuring handling of that:\n\n" + words + "\n", 2);
}

TEST_CASE("marks that stand before the words") {
  check("a\n \t  " + words + "\n", 1);
  check("[rank12]: " + words + "\n", 1);
  check("  + Exception Group " + words + "\n", 1);
  check("[rank0]:   + Exception Group " + words + "\n", 1);
}

TEST_CASE("a progress bar has no end before the traceback") {
  check("\r 50%|#  |\r" + words + "\n", 1);
  check("\r 50%|#  | 1/2" + words + "\n", 1);
}

TEST_CASE("lines that only mention a traceback") {
  check("it said " + words + "\n", 0);
  check("\r 50%\nit said " + words + "\n", 0);
  check("T" + words + "\n", 0);
  check(words + " " + words + "\n", 1);
  check("[rank]: x " + words + "\n", 0);
  check("[rankx]: " + words + "\n", 0);
  check("Traceback (most recent\ncall last):\n", 0);
  check("Traceback\n", 0);
  check(std::string(1000, ' ') + words + "\n", 0);
}
