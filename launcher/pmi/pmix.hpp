#pragma once

#include <dlaunch/store.hpp>

#include <functional>
#include <string>
#include <vector>

/// The seam between the agent and the library that serves ranks by PMIx, which is
/// libdlaunch_pmix.so: an agent whose program has no need of it never loads it, and so never
/// OpenPMIx. Nothing here throws, and no function of one library is needed in the other.
namespace dlaunch::launcher {

/// Hears what ranks want. Ranks are those of the world. Called on threads of the library's own.
class PmixListener {
 public:
  virtual ~PmixListener() = default;
  virtual void on_connected(int rank) = 0;
  virtual void on_finalized(int rank) = 0;
  virtual void on_aborted(int rank, int exit_code, const std::string& message) = 0;
  /// It asks for what dlaunch does not do: "MPI_Comm_spawn".
  virtual void on_refused(int rank, const std::string& what) = 0;
  /// `all` is what every node has given, one after the other; without success nobody has it. From
  /// any thread, once.
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
  std::size_t own = 0;  ///< Which of the nodes this is.

  int world_size() const { return nodes.back().first_rank + nodes.back().ranks; }
};

/// What libdlaunch_pmix.so does. One thread calls.
class Pmix {
 public:
  virtual ~Pmix() = default;
  /// Serves this job's ranks from now on, and those of the job before no more. False, and why.
  virtual bool begin(const PmixJob& job, std::string& why) noexcept = 0;
  /// The variables by which a rank of this node finds us. False, and why.
  virtual bool variables(int rank, std::vector<std::string>& variables,
                         std::string& why) noexcept = 0;
  /// Ends all; the listener is called no more.
  virtual void end() noexcept = 0;
};

/// What libdlaunch_pmix.so offers under the name dlaunch_pmix: its one Pmix, which lives as long as
/// the process; or null, and why. `version` is the caller's DLAUNCH_VERSION.
using PmixEntry = Pmix*(const char* version, PmixListener* listener, std::string* why);

/// Loads the library. Throws Error{unsupported} with what is lacking.
Pmix& load_pmix(PmixListener& listener);

}  // namespace dlaunch::launcher
