#include "launcher/output/told_lines.hpp"

#include <doctest/doctest.h>

using dlaunch::launcher::ToldLines;

namespace {

std::shared_ptr<ToldLines::Shown> nothing_shown() { return std::make_shared<ToldLines::Shown>(); }

}  // namespace

TEST_CASE("what another host's launcher has said is not shown again, however the bytes come") {
  const std::string text = "dlaunch: epoch 1\n[b:1] step\ndlaunch: b's own\ndla\n\n====\nd";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    CAPTURE(piece);
    const auto shown = nothing_shown();
    ToldLines a(shown), b(shown);
    CHECK(a.feed("dlaunch: epoch 1\n") == "dlaunch: epoch 1\n");
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      out += b.feed(std::string_view(text).substr(at, piece));
    }
    CHECK(out == "[b:1] step\ndlaunch: b's own\ndla\n\n====\n");
    CHECK(b.end() == "d");
    CHECK(b.end().empty());
  }
}

TEST_CASE("what a host says again is shown again, once for all") {
  const auto shown = nothing_shown();
  ToldLines a(shown), b(shown);
  const std::string line = "dlaunch: rank 1 on b exited with 3\n";
  CHECK(a.feed(line + line) == line + line);
  CHECK(b.feed(line + line).empty());
  CHECK(b.feed(line) == line);
  CHECK(a.feed(line).empty());
}

TEST_CASE("what is no launcher's line, or a long one, waits for nothing") {
  const auto shown = nothing_shown();
  ToldLines a(shown), b(shown);
  CHECK(a.feed("\r 10%") == "\r 10%");
  CHECK(a.feed("\r 20%") == "\r 20%");
  CHECK(a.feed("\ndlaunch: x") == "\n");
  CHECK(a.feed("\n") == "dlaunch: x\n");
  const std::string line = "dlaunch: " + std::string(ToldLines::line_bytes_max, 'x');
  CHECK(a.feed(line) == line);
  CHECK(b.feed(line) == line);
  CHECK(b.feed("\ndlaunch: x\n") == "\n");
}

TEST_CASE("more lines than are known are shown each time") {
  const auto shown = nothing_shown();
  ToldLines a(shown), b(shown);
  for (std::size_t i = 0; i < ToldLines::lines_max; ++i) {
    a.feed("dlaunch: " + std::to_string(i) + "\n");
  }
  CHECK(a.feed("dlaunch: more\n") == "dlaunch: more\n");
  CHECK(b.feed("dlaunch: more\n") == "dlaunch: more\n");
  CHECK(b.feed("dlaunch: 7\n").empty());
}
