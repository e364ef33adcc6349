#pragma once

#include "launcher/pmi/node_exchange.hpp"
#include "launcher/pmi/pmix.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace dlaunch::launcher {

/// Brings the PMIx requests of this node's MPI ranks to the agent's thread, which is that of `io`.
class PmixRanks : private PmixListener {
 public:
  /// The agent's side of the requests. Ranks are local.
  struct Wishes {
    std::function<void(int rank, int exit_code, const std::string& message)> abort;
    std::function<void(int rank, const std::string& what)> refused;
  };
  /// Throws Error{unsupported} where the library cannot be had.
  PmixRanks(boost::asio::io_context& io, NodeExchange& exchange, Wishes wishes);
  ~PmixRanks() override;

  /// A new epoch; `job` lacks only its folder. `shares_host`: with another agent, whose ranks are
  /// another node's to PMIx. Throws Error{internal}.
  void begin(PmixJob job, bool shares_host);
  /// The variables of a rank. Throws Error{internal}.
  std::vector<std::string> variables(int rank) const;

  bool has_begun(int rank) const { return at(rank) != Stage::silent; }
  bool is_inside(int rank) const { return at(rank) == Stage::inside; }

 private:
  enum class Stage { silent, inside, over };

  void on_connected(int rank) override;
  void on_finalized(int rank) override;
  void on_aborted(int rank, int exit_code, const std::string& message) override;
  void on_refused(int rank, const std::string& what) override;
  void on_fence(Bytes mine, Fenced done) override;
  void later(std::function<void()> act);
  Stage at(int rank) const { return stages_.at(static_cast<std::size_t>(rank)); }
  Stage& at(int rank) { return stages_.at(static_cast<std::size_t>(rank)); }
  int local(int rank) const { return rank - first_rank_; }

  boost::asio::io_context& io_;
  NodeExchange& exchange_;
  const Wishes wishes_;
  Pmix& library_;
  std::string folder_;         ///< Empty before the first epoch.
  std::string memory_folder_;  ///< For files in memory that agents must not share; empty: none.
  int first_rank_ = 0;
  std::vector<Stage> stages_;  ///< By local rank.
  std::uint64_t fence_ = 0;
  /// Calls from the library's threads check that this object still lives.
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace dlaunch::launcher
