#include "launcher/output_lines.hpp"

#include <random>

#include <doctest/doctest.h>

namespace dlaunch::launcher {
namespace {

Clock::time_point at_ms(long ms) { return Clock::time_point(std::chrono::milliseconds(ms)); }

std::string text_of(const Pieces& pieces, Stream stream) {
  std::string text;
  for (const auto& piece : pieces) {
    if (piece.to == stream) text += piece.text;
  }
  return text;
}

std::string all_text(const Pieces& pieces) {
  std::string text;
  for (const auto& piece : pieces) text += piece.text;
  return text;
}

}  // namespace

TEST_CASE("a line is emitted whole, when its end arrives, with its prefix") {
  OutputLines lines(false);
  const auto a = lines.add(Stream::out, "[0]: ");
  const auto b = lines.add(Stream::out, "[1]: ");
  Pieces out;
  lines.feed(a, "hel", at_ms(0), out);
  lines.feed(b, "one\ntwo\n", at_ms(1), out);
  CHECK(all_text(out) == "[1]: one\n[1]: two\n");
  lines.feed(a, "lo\n\n", at_ms(2), out);
  CHECK(all_text(out) == "[1]: one\n[1]: two\n[0]: hello\n[0]: \n");
  CHECK(!lines.next_deadline());
}

TEST_CASE("streams stay apart, and keep their order among each other") {
  OutputLines lines(false);
  const auto out_source = lines.add(Stream::out, "");
  const auto err_source = lines.add(Stream::err, "[0]: ");
  Pieces out;
  lines.feed(out_source, "a\n", at_ms(0), out);
  lines.feed(err_source, "b\n", at_ms(0), out);
  lines.feed(out_source, "c\n", at_ms(0), out);
  REQUIRE(out.size() == 3);
  CHECK(out[1].to == Stream::err);
  CHECK(text_of(out, Stream::out) == "a\nc\n");
  CHECK(text_of(out, Stream::err) == "[0]: b\n");
}

TEST_CASE("a partial line waits 100 ms, then others begin a new line") {
  OutputLines lines(true);
  const auto a = lines.add(Stream::out, "[0]: ");
  const auto b = lines.add(Stream::err, "[1]: ");
  Pieces out;
  lines.feed(a, "name? ", at_ms(0), out);
  CHECK(lines.next_deadline() == at_ms(100));
  lines.flush_due(at_ms(99), out);
  CHECK(out.empty());
  lines.flush_due(at_ms(100), out);
  CHECK(all_text(out) == "[0]: name? ");
  CHECK(!lines.next_deadline());
  lines.feed(a, "still ", at_ms(150), out);
  lines.flush_due(at_ms(250), out);
  CHECK(all_text(out) == "[0]: name? still ");
  lines.feed(b, "error\n", at_ms(260), out);
  lines.feed(a, "done\n", at_ms(270), out);
  CHECK(all_text(out) == "[0]: name? still \n[1]: error\n[0]: done\n");
}

TEST_CASE("an unfinished line on another surface is not disturbed") {
  OutputLines lines(false);
  const auto a = lines.add(Stream::out, "");
  const auto b = lines.add(Stream::err, "");
  Pieces out;
  lines.feed(a, "prompt", at_ms(0), out);
  lines.flush_due(at_ms(100), out);
  lines.feed(b, "error\n", at_ms(101), out);
  CHECK(text_of(out, Stream::out) == "prompt");
}

TEST_CASE("a progress bar's returns repeat the prefix") {
  OutputLines lines(true);
  const auto a = lines.add(Stream::err, "[3]: ");
  Pieces out;
  lines.feed(a, "\r 10%", at_ms(0), out);
  lines.flush_due(at_ms(100), out);
  CHECK(all_text(out) == "[3]: \r[3]:  10%");
  out.clear();
  lines.feed(a, "\r 20%\r 30%", at_ms(150), out);
  lines.flush_due(at_ms(250), out);
  CHECK(all_text(out) == "\r[3]:  20%\r[3]:  30%");
  out.clear();
  lines.feed(a, "\r100%\r\nend\r\n", at_ms(260), out);
  CHECK(all_text(out) == "\r[3]: 100%\r\n[3]: end\r\n");
  CHECK(lines.tail(a) == std::vector<std::string>{"100%", "end"});
}

TEST_CASE("lines are whole up to 64 KiB, longer ones are split and marked") {
  OutputLines lines(false);
  const auto a = lines.add(Stream::out, "[0]: ");
  Pieces out;
  const std::string whole(OutputLines::line_bytes_max, 'x');
  lines.feed(a, whole, at_ms(0), out);
  CHECK(out.empty());
  lines.feed(a, "\n", at_ms(0), out);
  CHECK(all_text(out) == "[0]: " + whole + "\n");
  out.clear();
  lines.feed(a, whole, at_ms(0), out);
  lines.feed(a, "rest\n", at_ms(0), out);
  CHECK(all_text(out) == "[0]: " + whole + "rest\n");
  out.clear();
  lines.feed(a, whole, at_ms(0), out);
  lines.feed(a, "rest", at_ms(0), out);
  lines.feed(a, "!\n", at_ms(0), out);
  CHECK(all_text(out) == "[0]: " + whole + " [dlaunch: the line goes on]\n[0]: rest!\n");
}

TEST_CASE("the end of a source ends its line") {
  OutputLines lines(false);
  const auto a = lines.add(Stream::out, "[0]: ");
  const auto b = lines.add(Stream::out, "[1]: ");
  Pieces out;
  lines.feed(a, "no newline", at_ms(0), out);
  lines.end(a, out);
  CHECK(all_text(out) == "[0]: no newline\n");
  lines.feed(b, "flushed", at_ms(0), out);
  lines.flush_due(at_ms(200), out);
  lines.end(b, out);
  lines.end(b, out);
  CHECK(all_text(out) == "[0]: no newline\n[1]: flushed\n");
}

TEST_CASE("the tail keeps the last lines of stderr, bounded") {
  OutputLines lines(false);
  const auto a = lines.add(Stream::err, "[0]: ");
  const auto b = lines.add(Stream::out, "[0]: ");
  Pieces out;
  for (int i = 0; i < 30; ++i) lines.feed(a, "line " + std::to_string(i) + "\n", at_ms(0), out);
  lines.feed(a, std::string(5000, 'y') + "\n", at_ms(0), out);
  lines.feed(a, "unfinished", at_ms(0), out);
  lines.feed(b, "not an error\n", at_ms(0), out);
  const auto tail = lines.tail(a);
  REQUIRE(tail.size() == OutputLines::tail_lines_max + 1);
  CHECK(tail.front() == "line 11");
  CHECK(tail[19].size() == OutputLines::tail_line_bytes_max);
  CHECK(tail.back() == "unfinished");
  CHECK(lines.tail(b).empty());
}

TEST_CASE("whatever the pieces, no byte is lost and no line is torn") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    OutputLines lines(true);
    std::vector<std::string> written(3), sent(3);
    for (int s = 0; s < 3; ++s) lines.add(Stream::out, std::string(1, static_cast<char>('A' + s)));
    Pieces out;
    for (int i = 0; i < 200; ++i) {
      const auto s = random() % 3;
      std::string bytes;
      for (auto n = random() % 12; n > 0; --n) {
        bytes += random() % 4 == 0 ? '\n' : static_cast<char>('a' + s);
      }
      written[s] += bytes;
      lines.feed(s, bytes, at_ms(0), out);  // Time stands still: nothing is partial for long.
    }
    for (std::size_t s = 0; s < 3; ++s) lines.end(s, out);
    std::string line;
    for (const char c : all_text(out)) {
      if (c != '\n') {
        line += c;
        continue;
      }
      REQUIRE(!line.empty());
      const auto s = static_cast<std::size_t>(line[0] - 'A');
      REQUIRE(s < 3);
      CHECK(line.find_first_not_of(static_cast<char>('a' + s), 1) == std::string::npos);
      sent[s] += line.substr(1) + "\n";
      line.clear();
    }
    for (std::size_t s = 0; s < 3; ++s) {
      if (!written[s].empty() && written[s].back() != '\n') written[s] += '\n';
      CHECK(sent[s] == written[s]);
    }
  }
}

}  // namespace dlaunch::launcher
