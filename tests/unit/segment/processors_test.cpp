#include "runtime/segment/processors.hpp"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <stdlib.h>

namespace fs = std::filesystem;
using namespace dlaunch;

TEST_CASE("a part of a processor is one, and the affinity mask is the most") {
  CHECK(Processors{8, std::nullopt}.usable() == 8);
  CHECK(Processors{8, 16.0}.usable() == 8);
  CHECK(Processors{8, 2.0}.usable() == 2);
  CHECK(Processors{8, 2.5}.usable() == 3);
  CHECK(Processors{8, 0.01}.usable() == 1);
  CHECK(Processors{0, std::nullopt}.usable() == 1);
  CHECK_FALSE(Processors{8, 1.5}.oversubscribed_by(2));
  CHECK(Processors{8, 1.5}.oversubscribed_by(3));
}

TEST_CASE("a quota is so many microseconds of each period; nonsense limits nothing") {
  CHECK(quota_of("200000", "100000") == 2.0);
  CHECK(quota_of("50000", "100000") == 0.5);
  for (const char* none : {"max", "-1", "0", "", " 1", "1 ", "1x", "99999999999999999999"}) {
    CAPTURE(none);
    CHECK_FALSE(quota_of(none, "100000"));
    CHECK_FALSE(quota_of("100000", none));
  }
}

TEST_CASE("the tightest quota counts, on the way up and of all hierarchies") {
  std::string root = (fs::temp_directory_path() / "dlaunch_processors_XXXXXX").string();
  REQUIRE(::mkdtemp(root.data()) != nullptr);
  const auto file = [&](const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  };
  CHECK(read_processors(root).allowed == static_cast<int>(cores_in_affinity_mask().size()));
  CHECK_FALSE(read_processors(root).quota);
  file("/proc/self/cgroup", "4:cpuset:/x\n3:cpuacct,cpu:/job\n0::/slice/job\nbroken\n1:a:b:/c\n");
  file("/sys/fs/cgroup/cpu.max", "max 100000\n");
  file("/sys/fs/cgroup/slice/cpu.max", "350000 100000\n");
  file("/sys/fs/cgroup/slice/job/cpu.max", "400000 100000\n");
  CHECK(read_processors(root).quota == 3.5);
  file("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  file("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "25000\n");
  file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(read_processors(root).quota == 0.25);
  fs::remove_all(root);
}
