#include "collectives/call/wait/started_messages.hpp"

namespace dlaunch {

StartedMessages::Ticket StartedMessages::free_ticket() {
  if (free_.empty()) {
    started_.push_back(std::make_unique<Started>());
    return started_.size() - 1;
  }
  const Ticket ticket = free_.back();
  free_.pop_back();
  return ticket;
}

StartedMessages::Ticket StartedMessages::start(transport::Links& mesh,
                                               const transport::Outgoing& outgoing) {
  const Ticket ticket = free_ticket();
  mesh.post(at(ticket).outgoing.emplace(outgoing));
  return ticket;
}

StartedMessages::Ticket StartedMessages::start(transport::Links& mesh,
                                               const transport::Receive& receive) {
  const Ticket ticket = free_ticket();
  mesh.post(at(ticket).receive.emplace(receive));
  return ticket;
}

void StartedMessages::end(Ticket ticket) {
  at(ticket) = {};
  free_.push_back(ticket);
}

void StartedMessages::take_back(transport::Links& mesh, Ticket ticket) noexcept {
  Started& message = at(ticket);
  if (message.receive && message.receive->pending()) mesh.withdraw(*message.receive);
  if (message.outgoing && message.outgoing->pending()) mesh.withdraw(*message.outgoing);
  message = {};
}

}  // namespace dlaunch
