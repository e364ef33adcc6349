#include "launcher/output/line_filter.hpp"

#include <doctest/doctest.h>

using dlaunch::launcher::LineFilter;

TEST_CASE("lines with any of the words, each with the prefix, however the bytes come") {
  const std::string text = "an apple\nnothing\npears\n\norange and apple\nlast or";
  const std::string picked = "[a]:an apple\n[a]:orange and apple\n";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    CAPTURE(piece);
    LineFilter filter({"apple", "orange"}, "[a]:");
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      out += filter.feed(std::string_view(text).substr(at, piece));
    }
    CHECK(out == picked);
    CHECK(filter.end().empty());
  }
}

TEST_CASE("the end of the stream ends its last line") {
  LineFilter filter({"x"}, "");
  CHECK(filter.feed("a\nx, no end").empty());
  CHECK(filter.end() == "x, no end\n");
  CHECK(filter.end().empty());
}

TEST_CASE("a progress bar's states are lines, and a word does not span two") {
  LineFilter filter({"50%", "ab"}, "");
  CHECK(filter.feed("\r 49%\r 50%\r 51%\ra\rb\r\n") == " 50%\n");
}

TEST_CASE("no words, no lines") {
  LineFilter filter({}, "");
  CHECK(filter.feed("anything\n").empty());
}

TEST_CASE("a line without end is judged in pieces") {
  LineFilter filter({"word"}, "");
  const std::string piece(LineFilter::line_bytes_max, 'x');
  CHECK(filter.feed(piece).empty());
  CHECK(filter.feed("word\nword").size() == 5);
  LineFilter other({"word"}, "");
  const std::string line = "word" + piece;
  CHECK(other.feed(line + "\n") == line.substr(0, piece.size()) + "\n");
}
