#include "launcher/plan/binding.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace dlaunch::launcher {

namespace {

using Cores = std::vector<LogicalCore>;

/// A worker's place: the index-th of all that share a NUMA node.
struct Home {
  int node = 0;
  std::size_t index = 0;
  std::size_t sharers = 1;
};

std::vector<Home> homes_on(const std::vector<int>& nodes) {
  std::map<int, std::size_t> sharers;
  std::vector<Home> homes;
  for (const int node : nodes) homes.push_back({node, sharers[node]++, 1});
  for (Home& home : homes) home.sharers = sharers[home.node];
  return homes;
}

/// The place in Topology::gpus of "3", "GPU-8932f937" (abbreviated or not), "MIG-8932f937-..." or,
/// as MIG devices were named before, "MIG-GPU-8932f937-.../1/0".
std::optional<std::size_t> gpu_index(const Topology& topology, std::string_view device) {
  const auto number = read_integer(device, 0, static_cast<long>(topology.gpus.size()) - 1);
  if (const auto* index = std::get_if<long>(&number)) return static_cast<std::size_t>(*index);
  if (device.starts_with("MIG-GPU-")) {
    device.remove_prefix(4);
    device = device.substr(0, device.find('/'));
  }
  for (const MigDevice& mig : topology.mig_devices) {
    if (mig.uuid == device) device = mig.gpu_uuid;
  }
  if (!device.starts_with("GPU-")) return std::nullopt;
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    if (topology.gpus[i].uuid.starts_with(device)) return i;
  }
  return std::nullopt;
}

/// Homes beside the GPUs. All visible GPUs share their node's cores, also those without a worker.
Read<std::vector<Home>> homes_by_gpu(const Topology& topology,
                                     std::span<const std::string> visible_gpus) {
  std::vector<int> nodes;
  for (const auto& device : visible_gpus) {
    const auto index = gpu_index(topology, device);
    if (!index) {
      return Complaint{"on which NUMA node the GPU " + in_quotes(device) +
                       " is cannot be told; leave the option out"};
    }
    nodes.push_back(topology.gpus[*index].node);
  }
  return homes_on(nodes);
}

/// Homes spread evenly over the physical cores; neighbouring workers get neighbouring cores.
std::vector<Home> homes_by_core(const Topology& topology, int workers) {
  // (socket, node, core), so that near cores stay together.
  std::set<std::tuple<int, int, int>> physical;
  for (const auto& core : topology.cores) physical.emplace(core.socket, core.node, core.core);
  const std::vector<std::tuple<int, int, int>> cores(physical.begin(), physical.end());
  std::vector<int> nodes;
  const auto count = static_cast<std::size_t>(workers);
  for (std::size_t worker = 0; worker < count; ++worker) {
    nodes.push_back(std::get<1>(cores[worker * cores.size() / count]));
  }
  return homes_on(nodes);
}

std::vector<int> numbers(const Cores& cores) {
  std::vector<int> result;
  for (const auto& core : cores) result.push_back(core.number);
  std::sort(result.begin(), result.end());
  return result;
}

/// The cores in groups of equal `part`, in its order.
std::vector<Cores> grouped(const Cores& cores, int LogicalCore::*part) {
  std::map<int, Cores> groups;
  for (const auto& core : cores) groups[core.*part].push_back(core);
  std::vector<Cores> result;
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  return result;
}

/// A worker's own physical cores; if they cannot be divided evenly, the first workers have one
/// more.
Read<std::vector<int>> exclusive_share(const Cores& of_node, const Home& home, bool in_turn) {
  const auto physical = grouped(of_node, &LogicalCore::core);
  if (in_turn && physical.size() < home.sharers) {
    return numbers(physical[home.index % physical.size()]);
  }
  const std::size_t each = physical.size() / home.sharers;
  const std::size_t more = physical.size() % home.sharers;
  if (each == 0) {
    return Complaint{"NUMA node " + std::to_string(home.node) + " has " +
                     std::to_string(physical.size()) +
                     " physical cores that may be used here, too few for one each of the " +
                     std::to_string(home.sharers) + " that share it"};
  }
  const std::size_t first = home.index * each + std::min(home.index, more);
  const std::size_t last = first + each + (home.index < more ? 1 : 0);
  Cores share;
  for (std::size_t i = first; i < last; ++i) {
    share.insert(share.end(), physical[i].begin(), physical[i].end());
  }
  return numbers(share);
}

/// The cores of one cache: workers take the groups in turn, the largest first.
std::vector<int> complex_share(const Cores& of_node, const Home& home) {
  auto complexes = grouped(of_node, &LogicalCore::cache);
  std::stable_sort(complexes.begin(), complexes.end(),
                   [](const Cores& a, const Cores& b) { return a.size() > b.size(); });
  return numbers(complexes[home.index % complexes.size()]);
}

Read<std::vector<int>> share_of(const Topology& topology, Binding mode, const Home& home) {
  Cores of_node;
  std::copy_if(topology.cores.begin(), topology.cores.end(), std::back_inserter(of_node),
               [&](const auto& core) { return core.node == home.node; });
  if (of_node.empty()) {
    return Complaint{"no core of NUMA node " + std::to_string(home.node) +
                     ", where a worker's GPU is, may be used here (see taskset -p, and the "
                     "cgroup's cpuset.cpus)"};
  }
  switch (mode) {
    case Binding::none:
      break;
    case Binding::node:
      return numbers(of_node);
    case Binding::socket: {
      Cores of_socket;
      std::copy_if(topology.cores.begin(), topology.cores.end(), std::back_inserter(of_socket),
                   [&](const auto& core) { return core.socket == of_node.front().socket; });
      return numbers(of_socket);
    }
    case Binding::exclusive:
    case Binding::core_share:
      return exclusive_share(of_node, home, mode == Binding::core_share);
    case Binding::core_complex:
      return complex_share(of_node, home);
  }
  return std::vector<int>{};
}

}  // namespace

Read<std::vector<std::vector<int>>> bind_workers(const Topology& topology, Binding mode,
                                                 int workers,
                                                 std::span<const std::string> visible_gpus) {
  if (topology.cores.empty()) return Complaint{"the cores that may be used are not known"};
  std::vector<Home> homes;
  if (visible_gpus.size() >= static_cast<std::size_t>(workers)) {
    auto by_gpu = homes_by_gpu(topology, visible_gpus);
    if (auto* complaint = std::get_if<Complaint>(&by_gpu)) return std::move(*complaint);
    homes = std::get<std::vector<Home>>(std::move(by_gpu));
  } else {
    homes = homes_by_core(topology, workers);
  }
  std::vector<std::vector<int>> shares;
  for (int worker = 0; worker < workers; ++worker) {
    auto share = share_of(topology, mode, homes[static_cast<std::size_t>(worker)]);
    if (auto* complaint = std::get_if<Complaint>(&share)) return std::move(*complaint);
    shares.push_back(std::get<std::vector<int>>(std::move(share)));
  }
  return shares;
}

}  // namespace dlaunch::launcher
