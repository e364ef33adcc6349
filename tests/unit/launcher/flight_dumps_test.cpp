// The files into which PyTorch has dumped its flight recorder.
#include "launcher/hang/flight_dumps.hpp"

#include "tests/support/temporary_folder.hpp"

#include <fstream>
#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

TEST_CASE("a rank with NCCL may have dumped its flight recorder without being told to keep one") {
  const testing::TemporaryFolder home;
  const std::string file = (home.path() / "comm_lib_trace_rank_3").string();
  std::ofstream(file) << "dumped";
  const auto found = [&](RankVariables variables, bool has_nccl, Clock::time_point since) {
    variables.emplace("TORCH_FR_DUMP_TEMP_FILE", (home.path() / "comm_lib_trace_rank_").string());
    const auto dumps = flight_dumps({{3, variables, has_nccl, since}}, Clock::now());
    return dumps.size() == 1 && dumps.front().file == file;
  };
  CHECK(found({}, true, Clock::time_point::min()));
  CHECK_FALSE(found({}, false, Clock::time_point::min()));
  CHECK(found({{"TORCH_FR_BUFFER_SIZE", "20"}}, false, Clock::time_point::min()));
  CHECK_FALSE(found({{"TORCH_FR_BUFFER_SIZE", "0"}}, true, Clock::time_point::min()));
  CHECK_FALSE(found({}, true, Clock::now() + std::chrono::hours(1)));  // Was there before the rank.
}
