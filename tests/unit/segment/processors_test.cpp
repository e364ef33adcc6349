#include "runtime/segment/processors.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

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
  const std::string one_of_two = read_processors(root).quota_of;
  CHECK(one_of_two != "");
  file("/sys/fs/cgroup/slice/cpu.max", "10000 100000\n");
  CHECK(read_processors(root).quota == 0.1);
  CHECK(read_processors(root).quota_of != one_of_two);
  fs::remove_all(root);
}

namespace {

/// So many ranks each, and what they may use.
std::vector<bool> crowded(const std::vector<std::pair<int, std::string>>& of_host) {
  std::vector<Tenants> tenants;
  for (const auto& [ranks, processors] : of_host) {
    tenants.push_back({ranks, processors_from(processors)});
  }
  return find_crowded(tenants);
}

using Answer = std::vector<bool>;

}  // namespace

TEST_CASE("ranks that were started apart count together where their masks meet") {
  CHECK(crowded({}) == Answer{});
  CHECK(crowded({{2, "0-1"}}) == Answer{false});
  CHECK(crowded({{3, "0-1"}}) == Answer{true});
  CHECK(crowded({{2, "0-1"}, {2, "0-1"}}) == Answer{true, true});
  CHECK(crowded({{1, "0-1"}, {1, "0-1"}}) == Answer{false, false});
  CHECK(crowded({{2, "0-1"}, {2, "2-3"}}) == Answer{false, false});
  CHECK(crowded({{2, "0-1"}, {3, "2-3"}}) == Answer{false, true});
  CHECK(crowded({{1, "0"}, {1, "1"}, {1, "0-1"}}) == Answer{true, true, true});
  // By others: the first and the last have no core in common.
  CHECK(crowded({{2, "0-1"}, {2, "1-2"}, {1, "2-3"}}) == Answer{true, true, true});
  CHECK(crowded({{1, "0-1"}, {2, "1-2"}, {1, "2-3"}}) == Answer{false, false, false});
  // Room elsewhere does not help ranks that must stay where they are.
  CHECK(crowded({{2, "0"}, {1, "0-63"}}) == Answer{true, false});
  CHECK(crowded({{1, "4,0,2"}, {2, "0,4"}}) == Answer{false, false});
}

TEST_CASE("a cgroup's quota is for all that are in it") {
  CHECK(crowded({{1, "0-7/2000@q"}, {1, "0-7/2000@q"}}) == Answer{false, false});
  CHECK(crowded({{1, "0-7/2000@q"}, {2, "0-7/2000@q"}, {2, "0-7/2000@r"}}) ==
        Answer{true, true, false});
  CHECK(crowded({{2, "0-7/1500@q"}}) == Answer{false});
  CHECK(crowded({{1, "0-7/1500@"}, {2, "0-7/1500@"}, {3, "0-7"}}) == Answer{false, false, false});
  CHECK(crowded({{3, "0-7/1500@"}}) == Answer{true});
}

TEST_CASE("ranks of which nothing is known count by themselves") {
  CHECK(crowded({{1, ""}, {1, ""}}) == Answer{false, false});
  std::vector<Tenants> wild{{1, {2, std::nullopt, {{2147483647, 2147483647}, {-5, -1}}, ""}},
                            {1, {2, std::nullopt, {{2147483646, 2}}, ""}}};
  CHECK(find_crowded(wild).size() == 2);
}

TEST_CASE("processors are one word, which reads back") {
  const Processors some{5, 1.5, {{0, 3}, {8, 2}}, "25:77"};
  CHECK(to_text(some) == "0-2,8-9/1500@25:77");
  CHECK(processors_from(to_text(some)) == some);
  CHECK(to_text(Processors{}) == "");
  CHECK(processors_from("") == Processors{});
  for (const char* none : {"x", "-1", "3-1", "0-99999999", "/", "/0@q", "/x@q", "/@", ","}) {
    CAPTURE(none);
    CHECK(processors_from(none) == Processors{});
  }
  const Processors here = read_processors();
  CHECK(processors_from(to_text(here)).cores == here.cores);
}
