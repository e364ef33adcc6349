#include "launcher/output/output_lines.hpp"

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

const Surfaces terminal{.one = true, .out_is_terminal = true, .err_is_terminal = true};
const std::string wipe = "\r\x1b[K";

}  // namespace

TEST_CASE("a line is emitted whole, when its end arrives, with its prefix") {
  OutputLines lines({});
  const auto a = lines.add({.prefix = "[0]: "});
  const auto b = lines.add({.prefix = "[1]: "});
  Pieces out;
  lines.feed(a, "hel", at_ms(0), out);
  lines.feed(b, "one\ntwo\n", at_ms(1), out);
  CHECK(all_text(out) == "[1]: one\n[1]: two\n");
  lines.feed(a, "lo\n\n", at_ms(2), out);
  CHECK(all_text(out) == "[1]: one\n[1]: two\n[0]: hello\n[0]: \n");
  CHECK(!lines.next_deadline());
}

TEST_CASE("lines that come many at a time are as those that come byte by byte") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto one_in = [&](unsigned n) { return random() % n == 0; };
    const Surfaces where = seed % 4 == 0 ? terminal : Surfaces{.one = seed % 4 == 1};
    OutputLines many(where), bytewise(where);
    for (int i = 0; i < 3; ++i) {
      const OutputLines::Writer writer{.to = i == 2 ? Stream::err : Stream::out,
                                       .prefix = i == 1 ? "" : "[" + std::to_string(i) + "] ",
                                       .shown = seed % 8 != 7 || i != 0,
                                       .keeps_tail = i != 1};
      many.add(writer);
      bytewise.add(writer);
    }
    Pieces out, out_bytewise;
    long ms = 0;
    for (int step = 0; step < 30; ++step) {
      std::string text;
      for (auto length = random() % 300; length > 0; --length) {
        text += one_in(8) ? '\n' : seed % 3 == 0 && one_in(40) ? '\r' : 'x';
      }
      const std::size_t source = random() % 3;
      many.feed(source, text, at_ms(ms), out);
      for (const char byte : text) bytewise.feed(source, {&byte, 1}, at_ms(ms), out_bytewise);
      CHECK(many.tail(source) == bytewise.tail(source));
      ms += one_in(4) ? 3000 : 10;
      many.flush_due(at_ms(ms), out);
      bytewise.flush_due(at_ms(ms), out_bytewise);
      CHECK(many.next_deadline() == bytewise.next_deadline());
    }
    for (const auto stream : {Stream::out, Stream::err}) {
      CHECK(text_of(out, stream) == text_of(out_bytewise, stream));
    }
    CHECK(all_text(out) == all_text(out_bytewise));
  }
}

TEST_CASE("streams stay apart, and keep their order among each other") {
  OutputLines lines({});
  const auto out_source = lines.add({.prefix = ""});
  const auto err_source = lines.add({.to = Stream::err, .prefix = "[0]: ", .keeps_tail = true});
  Pieces out;
  lines.feed(out_source, "a\n", at_ms(0), out);
  lines.feed(err_source, "b\n", at_ms(0), out);
  lines.feed(out_source, "c\n", at_ms(0), out);
  REQUIRE(out.size() == 3);
  CHECK(out[1].to == Stream::err);
  CHECK(text_of(out, Stream::out) == "a\nc\n");
  CHECK(text_of(out, Stream::err) == "[0]: b\n");
}

TEST_CASE("on a terminal a partial line waits 100 ms, then others begin a new line") {
  OutputLines lines(terminal);
  const auto a = lines.add({.prefix = "[0]: "});
  const auto b = lines.add({.to = Stream::err, .prefix = "[1]: "});
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

TEST_CASE("elsewhere a line that was begun is not torn while others write") {
  OutputLines lines({.one = true});
  const auto a = lines.add({.prefix = "[0]: "});
  const auto b = lines.add({.to = Stream::err, .prefix = "[1]: "});
  Pieces out;
  lines.feed(b, "one\n", at_ms(0), out);
  lines.feed(a, "beg", at_ms(100), out);
  CHECK(lines.next_deadline() == at_ms(1000));  // Until then the other may go on.
  for (long at = 900; at < 5000; at += 900) {
    lines.feed(b, "more\n", at_ms(at), out);
    lines.flush_due(at_ms(at), out);
  }
  CHECK(all_text(out).find("beg") == std::string::npos);
  lines.feed(a, "in\n", at_ms(5000), out);
  CHECK(all_text(out).ends_with("[1]: more\n[0]: begin\n"));

  out.clear();
  lines.feed(b, "last\n", at_ms(9900), out);
  lines.feed(a, "for ever", at_ms(10000), out);
  for (long at = 10500; at < 16000; at += 500) {
    lines.feed(b, "x\n", at_ms(at), out);
    lines.flush_due(at_ms(at), out);
  }
  // It is shown at last, and then it is in the others' way.
  CHECK(all_text(out).find("[1]: x\n[0]: for ever\n[1]: x\n") != std::string::npos);
}

TEST_CASE("elsewhere a prompt is shown while others are quiet, and then they wait for its line") {
  OutputLines lines({.one = true});
  const auto a = lines.add({.prefix = "[0]: "});
  const auto b = lines.add({.to = Stream::err, .prefix = "[1]: "});
  Pieces out;
  lines.feed(a, "name? ", at_ms(0), out);
  CHECK(lines.next_deadline() == at_ms(100));
  lines.flush_due(at_ms(100), out);
  CHECK(all_text(out) == "[0]: name? ");
  lines.feed(b, "one\n", at_ms(200), out);
  lines.feed(b, "two, begun", at_ms(300), out);
  CHECK(lines.next_deadline() == at_ms(5000));
  lines.flush_due(at_ms(4999), out);
  CHECK(all_text(out) == "[0]: name? ");
  SUBCASE("it ends") {
    lines.feed(a, "bob\n", at_ms(4999), out);
    CHECK(all_text(out) == "[0]: name? bob\n[1]: one\n");
  }
  SUBCASE("it does not") {
    lines.flush_due(at_ms(5000), out);
    // The other's begun line is the one that stands now.
    CHECK(all_text(out) == "[0]: name? \n[1]: one\n[1]: two, begun");
    lines.feed(a, "bob\n", at_ms(5001), out);
    lines.feed(b, "\n", at_ms(5002), out);
    CHECK(all_text(out) == "[0]: name? \n[1]: one\n[1]: two, begun\n[0]: bob\n");
  }
  SUBCASE("its writer ends") {
    lines.end(a, at_ms(4000), out);
    CHECK(all_text(out) == "[0]: name? \n[1]: one\n");
  }
  SUBCASE("too much waits") {
    const std::string big(OutputLines::held_bytes_max, 'x');
    for (std::size_t sent = 0; sent < big.size(); sent += 1000) {
      lines.feed(b, big.substr(0, 999) + "\n", at_ms(400), out);
    }
    CHECK(all_text(out).starts_with("[0]: name? \n[1]: one\n[1]: two, begunxxx"));
  }
  SUBCASE("the launcher itself does not wait") {
    lines.say(Stream::err, "dlaunch: x", out);
    CHECK(all_text(out) == "[0]: name? \n[1]: one\ndlaunch: x\n");
  }
}

TEST_CASE("an unfinished line on another surface is not disturbed") {
  OutputLines lines({});
  const auto a = lines.add({.prefix = ""});
  const auto b = lines.add({.to = Stream::err, .prefix = ""});
  Pieces out;
  lines.feed(a, "prompt", at_ms(0), out);
  lines.flush_due(at_ms(100), out);
  lines.feed(b, "error\n", at_ms(101), out);
  CHECK(text_of(out, Stream::out) == "prompt");
  CHECK(text_of(out, Stream::err) == "error\n");
}

TEST_CASE("on a terminal a progress bar stays one line, below what others write") {
  OutputLines lines(terminal);
  const auto a = lines.add({.to = Stream::err, .prefix = "[0] ", .keeps_tail = true});
  const auto b = lines.add({.prefix = "[1] "});
  Pieces out;
  const auto shown = [&](long at) {
    out.clear();
    lines.flush_due(at_ms(at), out);
    return all_text(out);
  };
  lines.feed(a, "\r 10%\r 20%", at_ms(0), out);
  CHECK(shown(100) == "[0]  20%");
  lines.feed(a, "\r 30%", at_ms(150), out);
  CHECK(shown(250) == wipe + "[0]  30%");
  CHECK(!lines.next_deadline());
  lines.feed(b, "hello\n", at_ms(260), out);
  CHECK(all_text(out).ends_with(wipe + "[1] hello\n"));
  CHECK(lines.next_deadline().value() <= at_ms(260));
  CHECK(shown(260) == "[0]  30%");
  // Another's bar waits until the first stands still, or ends.
  lines.feed(b, "50%\r", at_ms(300), out);
  CHECK(lines.next_deadline() == at_ms(2150));
  lines.feed(a, "\r 40%", at_ms(2100), out);
  CHECK(shown(2200) == wipe + "[0]  40%");
  lines.feed(b, "60%\r", at_ms(2300), out);
  CHECK(shown(4100) == wipe + "[1] 60%");
  CHECK(!lines.next_deadline());
  out.clear();
  lines.feed(a, "\r100%\n", at_ms(4200), out);
  CHECK(all_text(out) == wipe + "[0] 100%\n");
  CHECK(lines.tail(a) == std::vector<std::string>{"100%"});
  CHECK(shown(4200) == "[1] 60%");
  lines.feed(b, "     \r", at_ms(4300), out);  // Taken back, as by tqdm's leave=False.
  CHECK(shown(4400) == wipe);
  out.clear();
  lines.end(b, at_ms(4500), out);
  CHECK(all_text(out) == wipe);
}

TEST_CASE("progress is cut to the terminal's width, its end is not") {
  OutputLines lines(terminal);
  lines.resize(Stream::out, 10);
  const auto a = lines.add({.prefix = "[0] "});
  Pieces out;
  lines.feed(a,
             "\r\x1b[32m12\xe2\x96\x88"
             "4567\x1b[0m",
             at_ms(0), out);
  lines.flush_due(at_ms(100), out);
  CHECK(all_text(out) ==
        "[0] \x1b[32m12\xe2\x96\x88"
        "45\x1b[0m");
  out.clear();
  lines.feed(a, "\r1234567890\n", at_ms(0), out);
  CHECK(all_text(out) == wipe + "[0] 1234567890\n");
}

TEST_CASE("elsewhere progress is thinned to its last state") {
  OutputLines lines({.one = true});
  const auto a = lines.add({.to = Stream::err, .prefix = "[3] ", .keeps_tail = true});
  Pieces out;
  const auto shown = [&](long at) {
    out.clear();
    lines.flush_due(at_ms(at), out);
    return all_text(out);
  };
  lines.feed(a, "\r 10%", at_ms(0), out);
  lines.feed(a, "\r 20%\r 30%", at_ms(150), out);
  CHECK(shown(9999).empty());
  CHECK(lines.next_deadline() == at_ms(10'000));
  CHECK(shown(10'000) == "[3]  30%\n");
  CHECK(!lines.next_deadline());
  lines.feed(a, "\r 40%", at_ms(11'000), out);
  CHECK(shown(29'999).empty());
  CHECK(shown(30'000) == "[3]  40%\n");
  lines.feed(a, "\r 50%", at_ms(31'000), out);
  CHECK(shown(70'000) == "[3]  50%\n");
  lines.feed(a, "\r 60%", at_ms(71'000), out);
  CHECK(lines.next_deadline() == at_ms(130'000));  // And no rarer than that.
  out.clear();
  lines.feed(a, "\r100%\r\nend\r\n", at_ms(72'000), out);
  CHECK(all_text(out) == "[3] 100%\r\n[3] end\r\n");
  CHECK(lines.tail(a) == std::vector<std::string>{"100%", "end"});

  out.clear();
  lines.feed(a, "\r 1%\r 2%\r   \r", at_ms(73'000), out);
  lines.end(a, at_ms(73'001), out);
  CHECK(all_text(out).empty());
  const auto b = lines.add({.prefix = ""});
  lines.feed(b, "\r 1%\r 2%", at_ms(74'000), out);
  lines.end(b, at_ms(74'001), out);
  CHECK(all_text(out) == " 2%\n");
}

TEST_CASE("a state that was written is not written again at the end of its line") {
  OutputLines lines({});
  const auto a = lines.add({.prefix = "[0] "});
  Pieces out;
  lines.feed(a, "\r100%", at_ms(0), out);
  lines.flush_due(at_ms(10'000), out);
  lines.feed(a, "\nnext\n", at_ms(10'001), out);
  CHECK(all_text(out) == "[0] 100%\n[0] next\n");
  out.clear();
  lines.feed(a, "\r 10%", at_ms(20'000), out);
  lines.flush_due(at_ms(30'000), out);
  lines.feed(a, "\r100%\n", at_ms(30'001), out);
  CHECK(all_text(out) == "[0]  10%\n[0] 100%\n");
}

TEST_CASE("lines are whole up to 64 KiB, longer ones are split and marked") {
  OutputLines lines({});
  const auto a = lines.add({.prefix = "[0]: "});
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
  OutputLines lines({});
  const auto a = lines.add({.prefix = "[0]: "});
  const auto b = lines.add({.prefix = "[1]: "});
  Pieces out;
  lines.feed(a, "no newline", at_ms(0), out);
  lines.end(a, at_ms(0), out);
  CHECK(all_text(out) == "[0]: no newline\n");
  lines.feed(b, "flushed", at_ms(2000), out);
  lines.flush_due(at_ms(2200), out);
  CHECK(all_text(out) == "[0]: no newline\n[1]: flushed");
  lines.end(b, at_ms(0), out);
  lines.end(b, at_ms(0), out);
  CHECK(all_text(out) == "[0]: no newline\n[1]: flushed\n");
}

TEST_CASE("the tail keeps the last lines of stderr, bounded") {
  OutputLines lines({});
  const auto a = lines.add({.to = Stream::err, .prefix = "[0]: ", .keeps_tail = true});
  const auto b = lines.add({.prefix = "[0]: "});
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
    OutputLines lines({.one = true});
    std::vector<std::string> written(3), sent(3);
    for (int s = 0; s < 3; ++s) lines.add({.prefix = std::string(1, static_cast<char>('A' + s))});
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
    for (std::size_t s = 0; s < 3; ++s) lines.end(s, at_ms(0), out);
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
