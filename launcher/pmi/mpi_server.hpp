#pragma once

#include "launcher/pmi/core/node_ranks.hpp"
#include "launcher/pmi/core/program.hpp"
#include "launcher/pmi/node_exchange.hpp"
#include "launcher/pmi/pmix_ranks.hpp"
#include "runtime/base/os/exit_status.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace dlaunch::launcher {

/// Hears the requests of MPI ranks to their agent. Ranks are local. Called on the thread of the
/// io_context.
class MpiListener {
 public:
  virtual ~MpiListener() = default;
  /// A sentence for the user.
  virtual void on_mpi_said(const std::string& sentence) = 0;
  /// The rank gives up the whole job, which ends with this code, never 0: it is in MPI_Abort, or
  /// its process has ended in the middle of MPI.
  virtual void on_gave_up(int rank, int exit_code) = 0;
};

/// Serves the MPI ranks of this node: by PMI, each on a socket of its own (PMI_FD), by PMIx, or by
/// either, as they choose. One thread: that of `io`.
class MpiServer {
 public:
  /// If the library for PMIx cannot be loaded: throws Error{unsupported} where PMIx alone is to be
  /// served; else says so and goes on without PMIx.
  MpiServer(boost::asio::io_context& io, const pmi::Speech& offer, MpiListener& listener);
  ~MpiServer();

  struct Epoch {
    std::string job;
    std::string host;
    store::NodePlace place;
  };
  /// A new epoch. Finds out how many ranks each node has, and calls `known` when that is known, or
  /// never will be. No other call is made before that.
  void begin(const Epoch& epoch, store::Uplink* uplink, std::function<void()> known);
  bool serves_pmix() const { return pmix_ != nullptr; }
  /// The variables of a rank for PMIx. Throws Error{internal}.
  std::vector<std::string> pmix_variables(int rank) const { return pmix_->variables(rank); }
  /// The agent's end of a worker's socket.
  void serve(int rank, unique_fd ours);
  /// The worker's process has ended; its earlier requests are taken first. Returns the end it
  /// chose: after MPI_Abort that is its code, though our signal ended the process.
  ExitStatus ended(int rank, const ExitStatus& status);
  /// Whether the rank, of this node, has spoken PMI or PMIx.
  bool has_begun(int rank) const;
  /// Whether a rank of the epoch has spoken PMI or PMIx.
  bool was_used() const;

 private:
  struct Line {
    explicit Line(boost::asio::io_context& io) : socket(io) {}
    boost::asio::posix::stream_descriptor socket;
    std::string unsent;  ///< Answers that the rank has not read.
  };

  void on_nodes(const NodeExchange::Gathered& nodes);
  std::unique_ptr<PmixRanks> make_pmix(const pmi::Speech& offer);
  std::string name(int rank) const;
  void abort(int rank, int exit_code);
  void read_when_ready(int rank);
  void read_all(int rank);
  void carry_out(pmi::Effects effects);
  void send(int rank, std::string_view bytes);
  void flush(int rank);

  boost::asio::io_context& io_;
  MpiListener& listener_;
  NodeExchange exchange_;
  Epoch epoch_;
  std::unique_ptr<PmixRanks> pmix_;  ///< Null where it is not offered.
  std::optional<pmi::NodeRanks> ranks_;
  std::map<int, std::shared_ptr<Line>> lines_;
  std::map<int, int> aborted_;  ///< Local rank and code of MPI_Abort.
};

}  // namespace dlaunch::launcher
