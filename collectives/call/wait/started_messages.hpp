#pragma once

#include "collectives/transport/links.hpp"
#include "collectives/transport/message/mesh.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace dlaunch {

/// The messages of a call that are under way while it does something else, by their tickets. For
/// the thread that makes the call; functions that take the mesh need its lock.
class StartedMessages {
 public:
  using Ticket = Mesh::Ticket;
  /// Neither: the ticket is free.
  struct Started {
    std::optional<transport::Receive> receive;
    std::optional<transport::Outgoing> outgoing;
  };

  Ticket start(transport::Links& mesh, const transport::Outgoing& outgoing);
  Ticket start(transport::Links& mesh, const transport::Receive& receive);
  Started& at(Ticket ticket) { return *started_[ticket]; }
  /// It is complete.
  void end(Ticket ticket);
  /// The call is given up.
  void take_back(transport::Links& mesh, Ticket ticket) noexcept;

 private:
  Ticket free_ticket();

  std::vector<std::unique_ptr<Started>> started_;  ///< By ticket.
  std::vector<Ticket> free_;
};

}  // namespace dlaunch
