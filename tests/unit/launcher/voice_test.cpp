#include "launcher/output/voice.hpp"

#include "launcher/output/output_lines.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

namespace {

const WallClock::time_point now{std::chrono::milliseconds(1'795'178'710'250)};

}  // namespace

TEST_CASE("a line of the launcher's own as text") {
  const Voice voice{.job = "j", .node = "n"};
  CHECK(voice.line({Level::info, "connected to h:29400"}, now) == "dlaunch: connected to h:29400");
  CHECK(voice.line({Level::error, "no"}, now) == "dlaunch: no");
}

TEST_CASE("a line of the launcher's own as JSON") {
  Voice voice{.json = true};
  CHECK(voice.line({Level::info, "it \"waits\"\n"}, now) ==
        R"({"time":"2026-11-20T12:45:10.250Z","level":"info","message":"it \"waits\"\n"})");
  voice.job = "job-7";
  voice.node = "a";
  const Remark failed{
      Level::error, "p FAILED: rank 3 exited with 1", "failed", 3, {{"why", "x\xff"}}};
  CHECK(voice.line(failed, now) ==
        R"({"time":"2026-11-20T12:45:10.250Z","level":"error","event":"failed",)"
        R"("message":"p FAILED: rank 3 exited with 1","job":"job-7","node":"a","rank":3,)"
        "\"why\":\"x\xef\xbf\xbd\"}");
  CHECK(voice.line({Level::warning, "w"}, now)->find(R"("level":"warning")") != std::string::npos);
}

TEST_CASE("a quiet launcher says errors only") {
  const Voice voice{.quiet = true};
  CHECK_FALSE(voice.line({Level::info, "a"}, now).has_value());
  CHECK_FALSE(voice.line({Level::warning, "a"}, now).has_value());
  CHECK(voice.line({Level::error, "a"}, now) == "dlaunch: a");
}

TEST_CASE("a rank's prefix in its colour") {
  CHECK(coloured_prefix("[0] ", 0) == "\x1b[36m[0]\x1b[0m ");
  CHECK(coloured_prefix("[1] ", 1) == "\x1b[33m[1]\x1b[0m ");
  CHECK(coloured_prefix("[6] ", 6) == "\x1b[36m[6]\x1b[0m ");
  CHECK(coloured_prefix("", 1).empty());
  CHECK(coloured_prefix("  ", 1) == "  ");
}
