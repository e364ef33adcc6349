// What workers write into the pipe of their node's agent.
#include "launcher/process/notify_pipe.hpp"

#include "tests/support/temporary_folder.hpp"

#include <dlaunch/error.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;
using namespace std::chrono_literals;

namespace {

using Lines = std::vector<std::string>;

Lines lines_of(NoticeLines& lines, std::string_view bytes) {
  Lines taken;
  lines.feed(bytes, [&](std::string_view line) { taken.emplace_back(line); });
  return taken;
}

}  // namespace

TEST_CASE("lines come whole, however they were read") {
  NoticeLines lines;
  CHECK(lines_of(lines, "prog").empty());
  CHECK(lines_of(lines, "ress\n\nprogress\npro") == Lines{"progress", "progress"});
  CHECK(lines_of(lines, "gress\n") == Lines{"progress"});
  const auto cut = lines_of(lines, std::string(5000, 'x') + "\nprogress\n");
  REQUIRE(cut.size() == 2);
  CHECK(cut[0].size() == 256);
  CHECK(cut[1] == "progress");
}

TEST_CASE("a line is a notice, or it is not") {
  CHECK(read_notice("progress") == WorkerNotice(ProgressMade{}));
  CHECK(read_notice("progress \r") == WorkerNotice(ProgressMade{}));
  CHECK(read_notice("extend 90") == WorkerNotice(TimeWanted{90s}));
  CHECK(read_notice("extend 1500ms") == WorkerNotice(TimeWanted{1500ms}));
  CHECK_FALSE(read_notice("extend"));
  CHECK_FALSE(read_notice("extend soon"));
  CHECK_FALSE(read_notice("extend -5"));
  CHECK_FALSE(read_notice("Progress"));
  CHECK_FALSE(read_notice("progress 5"));
  CHECK_FALSE(read_notice(""));
}

TEST_CASE("the pipe takes notices of one writer after the other, and goes with its owner") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() / "notify";
  boost::asio::io_context io;
  int progress = 0;
  std::chrono::milliseconds wanted{};
  Lines others;
  {
    NotifyPipe pipe(io, path,
                    {.progress = [&] { ++progress; },
                     .time_wanted = [&](auto time) { wanted += time; },
                     .other = [&](std::string_view line) { others.emplace_back(line); }});
    for (int i = 0; i < 2; ++i) {
      std::ofstream(path) << "progress\nextend 2\nwhat\n";
      while (static_cast<int>(others.size()) <= i) io.run_one();
    }
    CHECK(progress == 2);
    CHECK(wanted == 4s);
    CHECK(others == Lines{"what", "what"});
    CHECK_THROWS_AS(NotifyPipe(io, path, {}), Error);
    CHECK(std::filesystem::exists(path));
  }
  CHECK_FALSE(std::filesystem::exists(path));
  io.run();
}
