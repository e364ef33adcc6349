#include "collectives/bench/measure.hpp"
#include "collectives/bench/memory.hpp"
#include "tests/unit/nccl/double_ranks.hpp"

#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

/// The benchmark's own calls and checks between several ranks.
namespace dlaunch::testing {
namespace {

using namespace bench;

void measure_all(const std::vector<std::string>& words) {
  CAPTURE(words.back());
  auto read = parse_options(words);
  REQUIRE(std::holds_alternative<Settings>(read));
  Settings settings = std::get<Settings>(read);
  settings.iterations = 2;
  settings.repetitions = 2;
  settings.check = true;
  check_all(run_device_ranks(3, [&](const World& world) {
    Communicator comm(world);
    CudaDevice device(comm.rank());
    CHECK(device.number() == comm.rank());
    device.bring_up(comm);
    const std::size_t bytes = largest_message(settings, comm.size());
    Arena in(comm, bytes, settings.buffers, &device), out(comm, bytes, settings.buffers, &device);
    const auto rows = measure(comm, settings, in, out, {});
    CHECK(rows.size() == 2 * settings.ops.size());
    for (const Row& row : rows) {
      CAPTURE(operation(row.op).name);
      CHECK(row.wrong == 0);
      CHECK(row.time_us >= row.host_us);
      CHECK(row.host_us >= 0);
    }
  }));
}

TEST_CASE("every operation is measured on devices, and checked") {
  measure_all({"--device", "cuda", "--sizes", "64,4K"});
  measure_all({"--device", "cuda", "--sizes", "64,4K", "--started"});
  measure_all({"--device", "cuda", "--sizes", "64,4K", "--in-place", "--buffers", "registered"});
  measure_all({"--device", "cuda", "--sizes", "64,4K", "--dtype", "bf16", "--redop", "mean"});
}

}  // namespace
}  // namespace dlaunch::testing
