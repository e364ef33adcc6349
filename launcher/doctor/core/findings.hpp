#pragma once

#include "launcher/doctor/core/host_clock.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Judges what makes jobs fail on a host: facts in, findings out. Pure.
namespace dlaunch::launcher::doctor {

struct Interface {
  std::string name = {};
  std::string address = {};
  int mtu = 0;  ///< Bytes; 0 where it is not known.
  bool loopback = false;
};

/// A limit of this process; nullopt: there is none.
struct Limit {
  std::optional<std::uint64_t> soft = {}, hard = {};
};

struct Space {
  std::uint64_t total_bytes = 0, free_bytes = 0;
};

/// The Python that would run a script.
struct Python {
  std::string path = {};     ///< Empty: there is none.
  std::string version = {};  ///< "3.11.2"; empty where it did not say.
  std::string torch = {};    ///< PyTorch's version; empty: it is not there.
};

/// A host and port that were asked for.
struct Peer {
  enum class Kind {
    unreachable,
    silent,   ///< It accepts the connection and does not answer our greeting.
    other,    ///< It speaks another protocol.
    dlaunch,  ///< dlaunchd, or a launcher that hosts a job.
  };
  std::string name = {};  ///< "head:29400".
  Kind kind = Kind::unreachable;
  std::uint32_t version = 0;                 ///< Protocol version, if it speaks dlaunch's.
  std::chrono::microseconds connected_in{};  ///< For the connection alone.
  std::string error = {};                    ///< Why it could not be reached.
};

/// The facts that were read of this host. An empty optional could not be read.
struct HostFacts {
  std::string hostname = {};
  std::vector<std::string> addresses = {};  ///< The addresses of the host's own name.
  std::string lookup_error = {};            ///< Why the name has none.
  std::string reverse_name = {};  ///< The name of the first address; empty where it has none.
  std::vector<Interface> interfaces = {};   ///< The interfaces that are up.
  std::string loopback_error = {};          ///< Empty: a connection to 127.0.0.1 works.
  std::optional<Space> shared_memory = {};  ///< /dev/shm.
  Limit files = {}, processes = {}, locked_memory = {}, core = {};
  bool is_root = false;
  bool has_infiniband = false;
  std::string core_pattern = {};
  int usable_cores = 1, online_cores = 1;
  std::string cores_reason = {};
  std::optional<std::uint64_t> memory_limit_bytes = {};  ///< The cgroup's.
  std::uint64_t memory_bytes = 0;                        ///< The host's.
  bool reads_processes = true;                           ///< process_vm_readv(2) of a child works.
  std::string read_error = {};
  int gpus = 0;
  bool has_nccl = false;
  std::optional<bool> clock_synchronised = {};
  std::string scheduler = {};               ///< "Slurm"; empty: none started this process.
  std::vector<std::string> variables = {};  ///< Names of the variables that options are taken from.
  Python python = {};
  std::optional<Peer> peer = {};
  std::vector<HostClock> clocks = {};  ///< Other hosts' clocks.
  std::uint32_t protocol_version = 0;  ///< Our own version.
};

enum class Level { ok, warning, problem };
const char* level_text(Level level);

struct Finding {
  Level level = Level::ok;
  std::string about = {};  ///< "/dev/shm".
  std::string text = {};   ///< The finding.
  std::string cure = {};   ///< The remedy; empty where nothing has to be done.

  bool operator==(const Finding&) const = default;
};

/// One finding for each subject, always in the same order.
std::vector<Finding> judge(const HostFacts& facts);

int count(const std::vector<Finding>& findings, Level level);
/// A line for each finding, its cure below it, and the numbers of problems and warnings.
std::string findings_text(const std::vector<Finding>& findings);
/// One line.
std::string findings_json(const std::vector<Finding>& findings);

}  // namespace dlaunch::launcher::doctor
