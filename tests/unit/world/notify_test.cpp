#include "tests/support/temporary_folder.hpp"

#include <dlaunch/notify.hpp>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace dlaunch;

namespace {

constexpr const char* variable = "DLAUNCH_WORKER_NOTIFY";

std::string text_in(int pipe) {
  std::array<char, 256> block{};
  const auto size = ::read(pipe, block.data(), block.size());
  return {block.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

}  // namespace

TEST_CASE("a notice is a line in the launcher's pipe, and nothing without one") {
  ::unsetenv(variable);
  CHECK_FALSE(report_progress());
  CHECK_FALSE(extend_deadline(std::chrono::seconds(90)));

  const testing::TemporaryFolder folder;
  const std::string path = folder.path() / "notify";
  ::setenv(variable, path.c_str(), 1);
  CHECK_FALSE(report_progress());

  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_FALSE(report_progress());  // Nobody reads it.
  const int pipe = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(pipe >= 0);
  CHECK(report_progress());
  CHECK(text_in(pipe) == "progress\n");
  CHECK(extend_deadline(std::chrono::seconds(90)));
  CHECK(extend_deadline(std::chrono::milliseconds(-5)));
  CHECK(text_in(pipe) == "extend 90000ms\nextend 0ms\n");
  // A launcher that stands still holds nobody up.
  for (int i = 0; i < 20000; ++i) REQUIRE(report_progress());
  CHECK_FALSE(extend_deadline(std::chrono::seconds(90)));
  ::close(pipe);
  CHECK_FALSE(report_progress());
  ::unsetenv(variable);
}
