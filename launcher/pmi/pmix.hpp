#pragma once

#include <dlaunch/store.hpp>

#include <functional>
#include <string>
#include <vector>

/// The seam between the agent and the library that serves ranks by PMIx, which is
/// libdlaunch_pmix.so: an agent whose program has no need of it never loads it, and so never
/// OpenPMIx. Nothing here throws, and no function of one library is needed in the other.
namespace dlaunch::launcher {

/// Hears the ranks' requests. Ranks are those of the world. Called on the library's threads.
class PmixListener {
 public:
  virtual ~PmixListener() = default;
  virtual void on_connected(int rank) = 0;
  virtual void on_finalized(int rank) = 0;
  virtual void on_aborted(int rank, int exit_code, const std::string& message) = 0;
  /// The rank asks for a thing that dlaunch does not do, such as "MPI_Comm_spawn".
  virtual void on_refused(int rank, const std::string& what) = 0;
  /// `all` is the data of every node, one after the other; if the fence failed, nobody has it.
  /// Called once, on any thread.
  using Fenced = std::function<void(bool success, const Bytes& all)>;
  /// The node's ranks are in a fence of the whole world, and bring `mine` along.
  virtual void on_fence(Bytes mine, Fenced done) = 0;
};

struct PmixNode {
  std::string name;  ///< Unique in the job.
  int first_rank = 0;
  int ranks = 0;
};
struct PmixJob {
  std::string name_space;
  std::string folder;  ///< For OpenPMIx's files of this job; nobody else may look into it.
  std::vector<PmixNode> nodes;
  std::size_t own = 0;  ///< The index of this node.

  int world_size() const { return nodes.back().first_rank + nodes.back().ranks; }
};

/// The interface of libdlaunch_pmix.so. For one thread.
class Pmix {
 public:
  virtual ~Pmix() = default;
  /// Serves this job's ranks from now on, in place of those of an earlier job. On failure false,
  /// and why.
  virtual bool begin(const PmixJob& job, std::string& why) noexcept = 0;
  /// The variables by which a rank of this node finds us. On failure false, and why.
  virtual bool variables(int rank, std::vector<std::string>& variables,
                         std::string& why) noexcept = 0;
  /// Ends everything; the listener is called no more.
  virtual void end() noexcept = 0;
};

/// What libdlaunch_pmix.so offers under the name dlaunch_pmix: its one Pmix, which lives as long as
/// the process; or null, and why. `version` is the caller's DLAUNCH_VERSION.
using PmixEntry = Pmix*(const char* version, PmixListener* listener, std::string* why);

/// Loads the library. Throws Error{unsupported} with what is lacking.
Pmix& load_pmix(PmixListener& listener);

}  // namespace dlaunch::launcher
