#include "launcher/machine/machine.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <stdlib.h>

namespace fs = std::filesystem;
using namespace dlaunch::launcher;

namespace {

/// A host made of files, below a directory of its own.
class FakeHost {
 public:
  FakeHost() {
    std::string pattern = (fs::temp_directory_path() / "dlaunch_machine_XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    root_ = pattern;
  }
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;
  ~FakeHost() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  FakeHost& file(const std::string& path, const std::string& text = "") {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
    return *this;
  }
  Machine read(const std::string& nvml = "/nowhere") const { return read_machine(root_, nvml); }

 private:
  std::string root_;
};

}  // namespace

TEST_CASE("this host has a name and at least one core") {
  const auto machine = read_machine();
  CHECK_FALSE(machine.hostname.empty());
  CHECK(machine.usable_cores >= 1);
}

TEST_CASE("a CPU quota limits the cores, also one above the own cgroup; at least one is left") {
  const int all = FakeHost().read().usable_cores;
  FakeHost v2;
  v2.file("/proc/self/cgroup", "0::/slice/job\n").file("/sys/fs/cgroup/cpu.max", "max 100000\n");
  CHECK(v2.read().usable_cores == all);
  v2.file("/sys/fs/cgroup/slice/cpu.max", "50000 100000\n");
  CHECK(v2.read().usable_cores == 1);
  CHECK(v2.read().cores_reason ==
        std::to_string(all) + " in the affinity mask, 1 by the cgroup's CPU quota");

  FakeHost v1;
  v1.file("/proc/self/cgroup", "4:cpu,cpuacct:/job\n3:memory:/job\n")
      .file("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "20000\n")
      .file("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
      .file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
      .file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(v1.read().usable_cores == 1);
}

TEST_CASE("nonsense in the cgroup files limits nothing") {
  const int all = FakeHost().read().usable_cores;
  FakeHost odd;
  odd.file("/proc/self/cgroup", "garbage\n0::\n0::relative\n0::/a\n")
      .file("/sys/fs/cgroup/a/cpu.max", "0 0\n")
      .file("/sys/fs/cgroup/cpu.max", "x\n");
  CHECK(odd.read().usable_cores == all);
}

TEST_CASE("GPUs are device files; what the driver knows counts where none were made yet") {
  FakeHost host;
  CHECK(host.read().gpus == 0);
  host.file("/proc/driver/nvidia/gpus/0000:01:00.0/information");
  host.file("/proc/driver/nvidia/gpus/0000:02:00.0/information");
  // A container without GPUs sees the host's /proc.
  CHECK(host.read().gpus == 0);
  host.file("/dev/nvidiactl");
  CHECK(host.read().gpus == 2);
  host.file("/dev/nvidia3").file("/dev/nvidia-uvm").file("/dev/nvidia");
  CHECK(host.read().gpus == 1);
}

TEST_CASE("where the driver has no files, as in WSL, its management library counts") {
  FakeHost host;
  ::setenv("DLAUNCH_DOUBLE_GPUS", "3", 1);
  CHECK(host.read(DLAUNCH_NVML_DOUBLE).gpus == 0);  // Is not asked.
  host.file("/dev/dxg");
  CHECK(host.read(DLAUNCH_NVML_DOUBLE).gpus == 3);
  CHECK(host.read(DLAUNCH_NVML_DOUBLE).gpus == 3);
  CHECK(host.read("/nowhere/libnvidia-ml.so.1").gpus == 0);
  CHECK(host.read("libc.so.6").gpus == 0);
  host.file("/dev/nvidiactl").file("/dev/nvidia0");
  CHECK(host.read(DLAUNCH_NVML_DOUBLE).gpus == 1);
  ::unsetenv("DLAUNCH_DOUBLE_GPUS");
  FakeHost other;
  other.file("/dev/dxg");
  CHECK(other.read(DLAUNCH_NVML_DOUBLE).gpus == 0);  // It cannot be used.
}
