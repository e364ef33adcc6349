#pragma once

#include "runtime/store/protocol/wire.hpp"
#include "runtime/store/relay/uplink.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace dlaunch::launcher {

/// Exchanges data between the nodes of an epoch for their MPI ranks: one request to the job's store
/// for each node and round, whatever the number of its ranks. One thread: that of `io`.
class NodeExchange {
 public:
  explicit NodeExchange(boost::asio::io_context& io) : io_(io) {}
  ~NodeExchange() { forget(); }

  /// A new epoch: what was asked before is not answered any more. Null: this node is alone.
  void begin(store::Uplink* uplink, const store::NodePlace& place);

  /// The data of every node, in the order of their ranks; or why it will never be known: a rank is
  /// lost, or its node.
  using Gathered = std::variant<std::vector<Bytes>, std::string>;
  /// Called later, never from within this call.
  using Known = std::function<void(Gathered)>;
  /// All nodes make the same rounds of a name in the same order. Without a timeout a round waits
  /// for as long as ranks may compute; a rank that ends meanwhile ends it.
  void all_gather(std::string_view name, std::uint64_t round, Bytes mine, Known known,
                  wire::Timeout timeout = {});

 private:
  void forget();

  boost::asio::io_context& io_;
  store::Uplink* uplink_ = nullptr;
  store::NodePlace place_;
  std::set<std::uint64_t> asked_;  ///< The uplink's numbers.
  /// An exchange under way checks that its epoch goes on.
  std::shared_ptr<int> epoch_ = std::make_shared<int>(0);
};

}  // namespace dlaunch::launcher
