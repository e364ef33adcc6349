#include "launcher/doctor/core/findings.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include <nlohmann/json.hpp>

namespace dlaunch::launcher::doctor {
namespace {

constexpr std::uint64_t kib = 1024, mib = 1024 * kib, gib = 1024 * mib;

/// "64.0 MiB".
std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 4> units = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / kib;
  std::size_t unit = 0;
  for (; value >= kib && unit + 1 < units.size(); ++unit) value /= kib;
  char text[40];
  std::snprintf(text, sizeof text, "%.1f %s", value, units[unit]);
  return text;
}

bool is_below(const std::optional<std::uint64_t>& limit, std::uint64_t least) {
  return limit && *limit < least;
}

std::string number_text(const std::optional<std::uint64_t>& limit) {
  return limit ? std::to_string(*limit) : "unlimited";
}

bool is_loopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1";
}

Finding host_name(const HostFacts& facts) {
  Finding found{.about = "host name"};
  if (facts.addresses.empty()) {
    found.level = Level::warning;
    found.text = facts.hostname + " stands for no address: " + facts.lookup_error;
    found.cure =
        "put it into /etc/hosts or DNS; or say --local-addr and --rdzv-endpoint by address";
    return found;
  }
  found.text = facts.hostname + " is " + listed(facts.addresses, 4) + "; " +
               facts.addresses.front() +
               (facts.reverse_name.empty() ? " has no name" : " is " + facts.reverse_name);
  if (std::ranges::all_of(facts.addresses, is_loopback) && facts.interfaces.size() > 1) {
    found.level = Level::warning;
    found.cure = "give the name an address of the network; other hosts cannot connect to this one";
  }
  return found;
}

Finding interfaces(const HostFacts& facts) {
  Finding found{.about = "interfaces"};
  std::vector<std::string> texts;
  bool network = false, small = false;
  for (const auto& one : facts.interfaces) {
    texts.push_back(one.name + " " + one.address +
                    (one.mtu > 0 ? " (MTU " + std::to_string(one.mtu) + ")" : ""));
    network = network || !one.loopback;
    constexpr int mtu_least = 1280;  // IPv6's.
    small = small || (one.mtu > 0 && one.mtu < mtu_least);
  }
  found.text = texts.empty() ? "none is up" : listed(texts, 8);
  if (!network) {
    found.level = Level::warning;
    found.cure = "jobs of this host alone run; a job of several hosts needs a network";
  } else if (small) {
    found.level = Level::warning;
    found.cure = "raise the MTU, or choose another interface with --iface";
  }
  return found;
}

Finding loopback(const HostFacts& facts) {
  if (facts.loopback_error.empty()) return {Level::ok, "loopback", "127.0.0.1 can be reached", ""};
  return {Level::problem, "loopback", "127.0.0.1 cannot be reached: " + facts.loopback_error,
          "ip link set lo up; or allow loopback connections in the firewall or sandbox"};
}

Finding shared_memory(const HostFacts& facts) {
  Finding found{.about = "/dev/shm"};
  constexpr std::uint64_t wanted = gib;
  if (!facts.shared_memory) {
    found.level = Level::warning;
    found.text = "it is not there";
    found.cure = "mount a tmpfs on it; PyTorch's data loaders and NCCL use it, dlaunch does not";
    return found;
  }
  const auto& [total, free] = *facts.shared_memory;
  found.text = bytes_text(total) + ", of which " + bytes_text(free) + " are free";
  if (free >= wanted) return found;
  found.level = Level::warning;
  found.cure =
      total < wanted
          ? "docker run --shm-size 8g, or a memory-backed emptyDir in Kubernetes; PyTorch's "
            "data loaders and NCCL use it, dlaunch does not"
          : "look for files that ended jobs have left there";
  return found;
}

Finding open_files(const HostFacts& facts) {
  Finding found{.about = "open files"};
  found.text = "limit " + number_text(facts.files.soft) + ", which dlaunch raises to " +
               number_text(facts.files.hard);
  if (is_below(facts.files.hard, 256)) {
    found.level = Level::problem;
  } else if (is_below(facts.files.hard, 4096)) {
    found.level = Level::warning;
  }
  if (found.level != Level::ok) found.cure = "ulimit -Hn 65536, or limits.conf, LimitNOFILE=";
  return found;
}

Finding processes(const HostFacts& facts) {
  Finding found{.about = "processes"};
  found.text = "limit " + number_text(facts.processes.soft);
  if (facts.is_root || !is_below(facts.processes.soft, 1024)) return found;
  found.level = Level::warning;
  found.cure = "ulimit -u 16384, or limits.conf, TasksMax=: each thread counts";
  return found;
}

Finding locked_memory(const HostFacts& facts) {
  Finding found{.about = "locked memory"};
  const auto& soft = facts.locked_memory.soft;
  found.text = "limit " + (soft ? bytes_text(*soft) : "unlimited");
  if (facts.is_root || !facts.has_infiniband || !is_below(soft, gib)) return found;
  found.level = Level::warning;
  found.cure = "ulimit -l unlimited: InfiniBand locks what it sends";
  return found;
}

Finding core_files(const HostFacts& facts) {
  Finding found{.about = "core files"};
  const bool none = facts.core.soft == std::uint64_t{0};
  const bool piped = facts.core_pattern.starts_with("|");
  found.text = none && !piped ? "none is written (ulimit -c is 0)"
               : piped        ? "a program takes them: " + clipped(facts.core_pattern.substr(1))
                              : "written as " + clipped(facts.core_pattern);
  if (none && !piped) found.cure = "ulimit -c unlimited, if core files are wanted";
  return found;
}

Finding processors(const HostFacts& facts) {
  Finding found{.about = "processors"};
  found.text = std::to_string(facts.usable_cores) + " of " + std::to_string(facts.online_cores) +
               " can be used: " + facts.cores_reason;
  if (facts.usable_cores == 1 && facts.online_cores > 1) {
    found.level = Level::warning;
    found.cure = "ask the scheduler for more, or see taskset -p and the cgroup's cpu.max";
  }
  return found;
}

Finding memory(const HostFacts& facts) {
  Finding found{.about = "memory"};
  found.text = bytes_text(facts.memory_bytes);
  if (!facts.memory_limit_bytes || *facts.memory_limit_bytes >= facts.memory_bytes) return found;
  found.text =
      bytes_text(*facts.memory_limit_bytes) + " by the cgroup, of the host's " + found.text;
  if (*facts.memory_limit_bytes >= gib) return found;
  found.level = Level::warning;
  found.cure = "ask for more memory: the kernel kills what goes beyond";
  return found;
}

Finding reading(const HostFacts& facts) {
  if (facts.reads_processes) {
    return {Level::ok, "process memory", "a rank can read another's (process_vm_readv)", ""};
  }
  return {
      Level::warning, "process memory",
      "a rank cannot read another's (process_vm_readv): " + facts.read_error,
      "sysctl kernel.yama.ptrace_scope=0 or 1, docker run --cap-add SYS_PTRACE; until then large "
      "messages between ranks of a host are copied twice"};
}

Finding gpus(const HostFacts& facts) {
  Finding found{.about = "GPUs"};
  found.text =
      plural(facts.gpus, "GPU") + ", libnccl.so.2 is " + (facts.has_nccl ? "there" : "not found");
  if (facts.gpus == 0 || facts.has_nccl) return found;
  found.level = Level::warning;
  found.cure =
      "install libnccl2, or pip's nvidia-nccl-cu12 and put it on LD_LIBRARY_PATH; PyTorch brings "
      "its own";
  return found;
}

Finding clock_state(const HostFacts& facts) {
  Finding found{.about = "clock"};
  if (!facts.clock_synchronised) {
    found.text = "the kernel does not say whether it is synchronised";
  } else if (*facts.clock_synchronised) {
    found.text = "synchronised";
  } else {
    found.level = Level::warning;
    found.text = "not synchronised";
    found.cure =
        "start chrony or systemd-timesyncd; until then the times in several hosts' logs differ";
  }
  return found;
}

Finding scheduler(const HostFacts& facts) {
  Finding found{.about = "scheduler"};
  found.text = facts.scheduler.empty() ? "none started this process" : facts.scheduler;
  if (!facts.variables.empty()) {
    found.text += "; variables that count: " + listed(facts.variables, 8);
  }
  return found;
}

Finding python(const HostFacts& facts) {
  Finding found{.about = "python"};
  const auto& [path, version, torch] = facts.python;
  if (path.empty()) {
    found.level = Level::warning;
    found.text = "there is none";
    found.cure = "activate an environment, or set PYTHON_EXEC; other programs run without it";
  } else if (version.empty()) {
    found.level = Level::warning;
    found.text = path + " does not run";
    found.cure = "activate another environment, or set PYTHON_EXEC";
  } else {
    found.text =
        path + ", " + version + (torch.empty() ? ", without PyTorch" : ", PyTorch " + torch);
  }
  return found;
}

std::string milliseconds_text(std::chrono::microseconds time) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f ms", static_cast<double>(time.count()) / 1e3);
  return text;
}

Finding peer(const Peer& peer, std::uint32_t own_version) {
  Finding found{.about = "peer"};
  const std::string reached = peer.name + " is reached in " + milliseconds_text(peer.connected_in);
  switch (peer.kind) {
    case Peer::Kind::unreachable:
      found = {Level::problem, "peer", peer.name + " is not reached: " + peer.error,
               "start it there, or open the firewall between"};
      break;
    case Peer::Kind::silent:
      found = {Level::problem, "peer", reached + ", and does not answer",
               "it is no dlaunchd or launcher, or it is stopped, or expects TLS"};
      break;
    case Peer::Kind::other:
      found = {Level::problem, "peer", reached + ", and is no dlaunchd or launcher",
               "see which program has this port there (ss -ltnp)"};
      break;
    case Peer::Kind::dlaunch:
      found.text = reached + ", and is a dlaunchd, or a launcher that hosts a job";
      if (peer.version == own_version) break;
      found.level = Level::problem;
      found.text += ", of protocol version " + std::to_string(peer.version) + "; ours is " +
                    std::to_string(own_version);
      found.cure = "install the same dlaunch on both hosts";
      break;
  }
  return found;
}

Finding host_clock(const HostClock& clock) {
  constexpr auto tolerable = std::chrono::milliseconds(100);
  Finding found{.about = "clock of " + clock.host};
  if (!clock.problem.empty()) {
    found.level = Level::warning;
    found.text = "it is not known: " + clock.problem;
    found.cure = "log in there by the program that --ssh names, which must not ask for a password";
    return found;
  }
  const auto apart = std::chrono::abs(clock.ahead);
  const std::string bound = milliseconds_text(clock.error);
  if (apart <= clock.error) {
    found.text = "the same as here, within " + bound;
    return found;
  }
  found.text = milliseconds_text(apart) + (clock.ahead.count() > 0 ? " ahead of" : " behind") +
               " this host's, within " + bound;
  if (apart - clock.error <= tolerable) return found;
  found.level = Level::warning;
  found.cure =
      "start chrony on both and compare chronyc tracking; until then the times in their logs, and "
      "--deadline, differ by that";
  return found;
}

}  // namespace

const char* level_text(Level level) {
  switch (level) {
    case Level::ok:
      return "ok";
    case Level::warning:
      return "warning";
    case Level::problem:
      return "problem";
  }
  return "?";
}

std::vector<Finding> judge(const HostFacts& facts) {
  std::vector<Finding> findings = {host_name(facts),     interfaces(facts), loopback(facts),
                                   shared_memory(facts), open_files(facts), processes(facts),
                                   locked_memory(facts), core_files(facts), processors(facts),
                                   memory(facts),        reading(facts),    gpus(facts),
                                   clock_state(facts),   scheduler(facts),  python(facts)};
  if (facts.peer) findings.push_back(peer(*facts.peer, facts.protocol_version));
  for (const auto& clock : facts.clocks) findings.push_back(host_clock(clock));
  return findings;
}

int count(const std::vector<Finding>& findings, Level level) {
  return static_cast<int>(std::ranges::count(findings, level, &Finding::level));
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::size_t width = 0;
  for (const auto& found : findings) width = std::max(width, found.about.size());
  const std::size_t level_width = std::string_view("problem").size();
  std::string text;
  for (const auto& [level, about, what, cure] : findings) {
    std::string first = level_text(level), second = about;
    first.resize(level_width, ' ');
    second.resize(width, ' ');
    text += first + "  " + second + "  " + what + "\n";
    if (!cure.empty()) text += std::string(level_width + width + 4, ' ') + cure + "\n";
  }
  return text + plural(count(findings, Level::problem), "problem") + ", " +
         plural(count(findings, Level::warning), "warning") + "\n";
}

std::string findings_json(const std::vector<Finding>& findings) {
  using nlohmann::ordered_json;
  ordered_json out;
  out["problems"] = count(findings, Level::problem);
  out["warnings"] = count(findings, Level::warning);
  auto& all = out["findings"] = ordered_json::array();
  for (const auto& [level, about, text, cure] : findings) {
    ordered_json one;
    one["level"] = level_text(level);
    one["about"] = about;
    one["text"] = text;
    one["cure"] = cure.empty() ? ordered_json(nullptr) : ordered_json(cure);
    all.push_back(std::move(one));
  }
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dlaunch::launcher::doctor
