#include "collectives/call/call.hpp"
#include "collectives/transport/message/fault_point.hpp"

/// Messages of a call that are under way while it does something else.
namespace dlaunch {

Call::Ticket Call::free_ticket() {
  if (waits().free_tickets.empty()) {
    waits().started.push_back(std::make_unique<Started>());
    return waits().started.size() - 1;
  }
  const Ticket ticket = waits().free_tickets.back();
  waits().free_tickets.pop_back();
  return ticket;
}

Call::Ticket Call::start_send(int to, BytesView data) {
  transport::at_step();
  const Ticket ticket = free_ticket();
  const auto lock = setting_.mesh.lock();
  setting_.mesh.post(waits().started[ticket]->outgoing.emplace(make_outgoing(to, data)));
  return ticket;
}

Call::Ticket Call::start_recv(int from, std::span<std::byte> data) {
  transport::at_step();
  const Ticket ticket = free_ticket();
  const auto lock = setting_.mesh.lock();
  setting_.mesh.post(waits().started[ticket]->receive.emplace(make_receive(from, data)));
  return ticket;
}

void Call::wait(Ticket ticket) {
  transport::at_step();
  Started& message = *waits().started[ticket];
  wait(message.receive ? &*message.receive : nullptr,
       message.outgoing ? &*message.outgoing : nullptr);
  message = {};
  waits().free_tickets.push_back(ticket);
}

void Call::take_back(Ticket ticket) noexcept {
  Started& message = *waits().started[ticket];
  const auto lock = setting_.mesh.lock();
  if (message.receive && message.receive->pending()) setting_.mesh.withdraw(*message.receive);
  if (message.outgoing && message.outgoing->pending()) setting_.mesh.withdraw(*message.outgoing);
  message = {};
}

}  // namespace dlaunch
