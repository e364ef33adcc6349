#pragma once

#include <dlaunch/world.hpp>

#include <map>
#include <string>

/// WorldInfo <-> environment, both ways. Pure: the environment comes in as a map, so that every
/// case is a test; current_environment() alone reads the process.
namespace dlaunch {

using Environment = std::map<std::string, std::string, std::less<>>;
Environment current_environment();

/// The launcher that prepared the environment, in the order of precedence.
enum class Launcher {
  dlaunch,    ///< DLAUNCH_WORKER_CONTROL or DLAUNCH_WORKER_AGENT.
  variables,  ///< RANK: by hand, or by torchrun.
  open_mpi,   ///< OMPI_COMM_WORLD_RANK.
  pmi,        ///< PMI_RANK: MPICH's hydra, Intel MPI.
  slurm,      ///< SLURM_PROCID: srun.
  none,
};
Launcher launcher_of(const Environment& environment);

/// The values to be read from an environment.
struct Asked {
  int rank = -1;  ///< Said by a URL; wins over the environment where it is not negative.
  int size = -1;
  bool master = false;  ///< Rank 0's address is needed, too (unless the world has one rank).
};

/// A process's place by its environment.
struct WorldPlace {
  WorldInfo info;        ///< master_addr and master_port are empty where the environment has none.
  bool on_node = false;  ///< Whether the rank on the node and the node's rank are known, too.
};

/// Reads the variables of `launcher` (none reads as `variables`). Throws Error{misuse} with one
/// sentence that names every missing variable, or the first wrong one, its value and what it may
/// be.
WorldPlace place_from(const Environment& environment, Launcher launcher, const Asked& asked = {});

/// A TCP port 1..65535 from its decimal form; Error{misuse} with `name` in the sentence.
int parse_port(const std::string& name, const std::string& text);
/// A decimal number `low`..`high`, nothing before or after it; Error{misuse} with `name`.
std::int64_t parse_number(const std::string& name, const std::string& text, std::int64_t low,
                          std::int64_t high);

/// The other way: the variables that place_from reads back as the same WorldInfo (hostname and
/// init_method are no variables).
Environment environment_of(const WorldInfo& info);

constexpr int world_size_max = 1 << 20;

}  // namespace dlaunch
