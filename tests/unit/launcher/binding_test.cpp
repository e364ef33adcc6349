// Which worker gets which cores, on machines written down; and how a machine is read.
#include "launcher/plan/binding.hpp"

#include "launcher/machine/nvml.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/segment/processors.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <stdlib.h>

namespace fs = std::filesystem;
using dlaunch::cores_in_affinity_mask;
using dlaunch::number_ranges;
using namespace dlaunch::launcher;

namespace {

using Strings = std::vector<std::string>;

/// Cores numbered as Linux does it: first each physical core's first thread, then the second ones.
Topology machine(int sockets, int nodes_per_socket, int cores_per_node, int threads = 2,
                 int cores_per_cache = 0) {
  Topology topology;
  const int physical = sockets * nodes_per_socket * cores_per_node;
  if (cores_per_cache == 0) cores_per_cache = cores_per_node;
  for (int number = 0; number < physical * threads; ++number) {
    const int core = number % physical;
    topology.cores.push_back({.number = number,
                              .node = core / cores_per_node,
                              .socket = core / (cores_per_node * nodes_per_socket),
                              .core = core,
                              .cache = core - core % cores_per_cache});
  }
  return topology;
}

Topology with_gpus(Topology topology, const std::vector<int>& nodes) {
  for (const int node : nodes) {
    topology.gpus.push_back({"GPU-" + std::to_string(topology.gpus.size()) + "abc", node});
  }
  return topology;
}

Topology only(Topology topology, const std::vector<int>& allowed) {
  std::erase_if(topology.cores, [&](const auto& core) {
    return std::find(allowed.begin(), allowed.end(), core.number) == allowed.end();
  });
  return topology;
}

Strings numbered(int count) {
  Strings devices;
  for (int i = 0; i < count; ++i) devices.push_back(std::to_string(i));
  return devices;
}

/// Every worker's cores, or the complaint.
Strings bound(const Topology& topology, Binding mode, int workers, const Strings& gpus = {}) {
  const auto result = bind_workers(topology, mode, workers, gpus);
  if (const auto* complaint = std::get_if<dlaunch::Complaint>(&result))
    return {complaint->sentence};
  Strings lists;
  for (const auto& cores : std::get<0>(result)) lists.push_back(number_ranges(cores));
  return lists;
}

using enum Binding;

}  // namespace

TEST_CASE("node: all cores of the node where the worker's GPU is") {
  // Two sockets of 4 cores with 2 threads: node 0 has 0-3,8-11.
  const auto host = with_gpus(machine(2, 1, 4), {0, 0, 1, 1});
  CHECK(bound(host, node, 4, numbered(4)) ==
        Strings{"0-3,8-11", "0-3,8-11", "4-7,12-15", "4-7,12-15"});
  CHECK(bound(host, node, 1, numbered(4)) == Strings{"0-3,8-11"});
  // CUDA_VISIBLE_DEVICES decides which GPU a local rank has.
  CHECK(bound(host, node, 2, {"3", "1"}) == Strings{"4-7,12-15", "0-3,8-11"});
  CHECK(bound(host, node, 2, {"GPU-2a", "MIG-GPU-0abc/1/0"}) == Strings{"4-7,12-15", "0-3,8-11"});
}

TEST_CASE("MIG devices belong beside their GPU, which the management library names") {
  auto host = with_gpus(machine(2, 1, 4), {0, 0, 1, 1});
  const Strings devices = {"MIG-2a", "MIG-1a", "MIG-1b"};
  const std::string complaint =
      "on which NUMA node the GPU 'MIG-2a' is cannot be told; leave the option out";
  CHECK(bound(host, node, 3, devices) == Strings{complaint});
  CHECK(mig_devices_by_nvml(devices, DLAUNCH_NVML_DOUBLE).empty());  // It cannot be used.
  CHECK(mig_devices_by_nvml(devices, "/nowhere/libnvidia-ml.so.1").empty());
  CHECK(mig_devices_by_nvml(devices, "libc.so.6").empty());

  ::setenv("DLAUNCH_DOUBLE_GPUS", "4", 1);
  host.mig_devices = mig_devices_by_nvml(devices, DLAUNCH_NVML_DOUBLE);
  CHECK(host.mig_devices == std::vector<MigDevice>{{"MIG-2a", "GPU-2abc"},
                                                   {"MIG-1a", "GPU-1abc"},
                                                   {"MIG-1b", "GPU-1abc"}});
  CHECK(bound(host, node, 3, devices) == Strings{"4-7,12-15", "0-3,8-11", "0-3,8-11"});
  const Strings unknown = {"0", "GPU-1abc", "MIG-GPU-0abc/1/0", "MIG-3a"};
  CHECK(mig_devices_by_nvml(unknown, DLAUNCH_NVML_DOUBLE).empty());
  ::unsetenv("DLAUNCH_DOUBLE_GPUS");
}

TEST_CASE("socket: all nodes of that socket") {
  const auto host = with_gpus(machine(2, 2, 2, 1), {0, 1, 2, 3});
  CHECK(bound(host, node, 4, numbered(4)) == Strings{"0-1", "2-3", "4-5", "6-7"});
  CHECK(bound(host, Binding::socket, 4, numbered(4)) == Strings{"0-3", "0-3", "4-7", "4-7"});
}

TEST_CASE("exclusive: physical cores are shared out, the first GPUs have one more") {
  const auto host = with_gpus(machine(1, 2, 5), {0, 1, 1, 1});
  CHECK(bound(host, exclusive, 4, numbered(4)) ==
        Strings{"0-4,10-14", "5-6,15-16", "7-8,17-18", "9,19"});
  // GPUs without a worker keep their share, as under torchrun.
  CHECK(bound(host, exclusive, 2, numbered(4)) == Strings{"0-4,10-14", "5-6,15-16"});
  CHECK(bound(host, exclusive, 2, {"0", "1"}) == Strings{"0-4,10-14", "5-9,15-19"});
  CHECK(bound(with_gpus(machine(1, 1, 2), {0, 0, 0}), exclusive, 3, numbered(3)) ==
        Strings{"NUMA node 0 has 2 physical cores that may be used here, too few for one each of "
                "the 3 that share it"});
}

TEST_CASE("core_share: as exclusive, and in turn where there are too few cores") {
  const auto host = machine(2, 1, 4);
  CHECK(bound(host, core_share, 4) == bound(host, exclusive, 4));
  CHECK(bound(host, core_share, 9) ==
        Strings{"0,8", "1,9", "2,10", "3,11", "0,8", "4,12", "5,13", "6,14", "7,15"});
  // Only two cores may be used.
  CHECK(bound(only(host, {1, 4, 12}), core_share, 5) == Strings{"1", "1", "1", "4,12", "4,12"});
  CHECK(bound(with_gpus(machine(1, 1, 2), {0, 0, 0}), core_share, 3, numbered(3)) ==
        Strings{"0,2", "1,3", "0,2"});
}

TEST_CASE("core-complex: one cache each, the largest first, and again from the start") {
  const auto host = with_gpus(machine(1, 2, 4, 1, 2), {0, 0, 0, 1});
  CHECK(bound(host, core_complex, 4, numbered(4)) == Strings{"0-1", "2-3", "0-1", "4-5"});
  // Only one core of the first cache may be used.
  CHECK(bound(only(host, {1, 2, 3, 4}), core_complex, 2, numbered(2)) == Strings{"2-3", "1"});
  // If nothing is told of caches, a node is one complex.
  auto unknown = host;
  for (auto& core : unknown.cores) core.cache = -1;
  CHECK(bound(unknown, core_complex, 4, numbered(4)) == Strings{"0-3", "0-3", "0-3", "4-7"});
}

TEST_CASE("without a GPU for every worker they are spread over the physical cores") {
  const auto host = machine(2, 1, 4);
  CHECK(bound(host, node, 4) == Strings{"0-3,8-11", "0-3,8-11", "4-7,12-15", "4-7,12-15"});
  CHECK(bound(host, node, 3) == Strings{"0-3,8-11", "0-3,8-11", "4-7,12-15"});
  CHECK(bound(host, node, 1) == Strings{"0-3,8-11"});
  CHECK(bound(host, Binding::socket, 2) == Strings{"0-3,8-11", "4-7,12-15"});
  CHECK(bound(host, exclusive, 4) == Strings{"0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"});
  CHECK(bound(host, exclusive, 8).back() == "7,15");
  CHECK(bound(host, exclusive, 9).size() == 1);  // A complaint.
  CHECK(bound(machine(1, 1, 8, 1, 2), core_complex, 5) ==
        Strings{"0-1", "2-3", "4-5", "6-7", "0-1"});
  // One GPU is too few for two workers, so it says nothing of where they belong.
  CHECK(bound(with_gpus(host, {1}), node, 2, {"0"}) == Strings{"0-3,8-11", "4-7,12-15"});
}

TEST_CASE("exclusive never lacks cores while there is one for each worker, however the mask is") {
  const auto host = only(machine(2, 2, 4), {0, 1, 2, 5, 12, 13, 14, 15, 31});
  for (int workers = 1; workers <= 8; ++workers) {
    CAPTURE(workers);
    const auto shares = bound(host, exclusive, workers);
    REQUIRE(shares.size() == static_cast<std::size_t>(workers));
    std::vector<int> all;
    for (const auto& share : shares) {
      CHECK_FALSE(share.empty());
      for (const int core : read_core_list(share)) all.push_back(core);
    }
    std::sort(all.begin(), all.end());
    CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  }
}

TEST_CASE("what cannot be bound is said") {
  const auto host = with_gpus(machine(2, 1, 4), {0, 1});
  CHECK(bound(only(host, {0, 1}), node, 2, numbered(2)) ==
        Strings{"no core of NUMA node 1, where a worker's GPU is, may be used here (see taskset "
                "-p, and the cgroup's cpuset.cpus)"});
  CHECK(bound(host, node, 1, {"MIG-1234"}) ==
        Strings{"on which NUMA node the GPU 'MIG-1234' is cannot be told; leave the option out"});
  CHECK(bound(host, node, 1, {"7"}).front().starts_with("on which NUMA node the GPU '7'"));
  CHECK(bound({}, node, 1) == Strings{"the cores that may be used are not known"});
}

TEST_CASE("lists of cores, as the kernel writes them") {
  CHECK(number_ranges(read_core_list("0-2,8,10-11")) == "0-2,8,10-11");
  CHECK(number_ranges(read_core_list("3,1-2,2")) == "1-3");
  CHECK(read_core_list("").empty());
  CHECK(number_ranges(read_core_list("x,4,5-y,-1,9-8")) == "4");
}

TEST_CASE("a machine is read from files: nodes, sockets, threads, caches, GPUs") {
  std::string root = (fs::temp_directory_path() / "dlaunch_topology_XXXXXX").string();
  REQUIRE(::mkdtemp(root.data()) != nullptr);
  const auto file = [&](const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path) << text << "\n";
  };
  const std::string cpu = "/sys/devices/system/cpu/cpu";
  file("/sys/devices/system/node/node0/cpulist", "0-1");
  file("/sys/devices/system/node/node1/cpulist", "2-3");
  file("/sys/devices/system/node/possible", "0-1");
  file(cpu + "2/topology/physical_package_id", "1");
  file(cpu + "2/topology/thread_siblings_list", "2-3");
  file(cpu + "2/cache/index0/type", "Data");
  file(cpu + "2/cache/index0/level", "1");
  file(cpu + "2/cache/index0/shared_cpu_list", "2");
  file(cpu + "2/cache/index1/type", "Instruction");
  file(cpu + "2/cache/index1/level", "9");
  file(cpu + "2/cache/index1/shared_cpu_list", "0-3");
  file(cpu + "2/cache/index3/type", "Unified");
  file(cpu + "2/cache/index3/level", "3");
  file(cpu + "2/cache/index3/shared_cpu_list", "1-3");
  const std::vector<int> allowed = {0, 2};
  const std::vector<LogicalCore> cores = {
      {.number = 0, .node = 0, .socket = 0, .core = 0, .cache = -1},
      {.number = 2, .node = 1, .socket = 1, .core = 2, .cache = 1}};

  // The driver tells of three GPUs, of which this container was given two.
  const std::string driver = "/proc/driver/nvidia/gpus/0000:";
  file(driver + "3b:00.0/information", "Model: \t\t Big\nGPU UUID:\t GPU-b\nDevice Minor: \t 0");
  file(driver + "1a:00.0/information", "GPU UUID:\t GPU-a\nDevice Minor: \t 1");
  file(driver + "00:00.0/information", "GPU UUID:\t GPU-c\nDevice Minor: \t 2");
  file("/dev/nvidia0", "");
  file("/dev/nvidia1", "");
  file("/sys/bus/pci/devices/0000:1a:00.0/numa_node", "1");
  file("/sys/bus/pci/devices/0000:3b:00.0/numa_node", "-1");
  CHECK(read_topology(allowed, root) == Topology{cores, {{"GPU-a", 1}, {"GPU-b", 0}}, {}});

  // Without the driver's word the bus is asked.
  fs::remove_all(root + "/proc");
  file("/sys/bus/pci/devices/0000:1a:00.0/vendor", "0x10de");
  file("/sys/bus/pci/devices/0000:1a:00.0/class", "0x030200");
  file("/sys/bus/pci/devices/0000:1b:00.0/vendor", "0x10de");
  file("/sys/bus/pci/devices/0000:1b:00.0/class", "0x068000");
  CHECK(read_topology(allowed, root) == Topology{cores, {{"", 1}}, {}});
  fs::remove_all(root);
  CHECK(read_topology(allowed, root).cores.back() ==
        LogicalCore{.number = 2, .node = 0, .socket = 0, .core = 2, .cache = -1});
}

TEST_CASE("this host's cores can be bound in every mode") {
  const auto allowed = cores_in_affinity_mask();
  REQUIRE_FALSE(allowed.empty());
  const auto host = read_topology(allowed);
  REQUIRE(host.cores.size() == allowed.size());
  for (const auto mode : {node, Binding::socket, exclusive, core_complex, core_share}) {
    const auto shares = bound(host, mode, 1);
    REQUIRE(shares.size() == 1);
    CHECK_FALSE(read_core_list(shares.front()).empty());
  }
}
