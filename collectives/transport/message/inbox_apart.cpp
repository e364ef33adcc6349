#include "collectives/transport/message/inbox.hpp"

#include <cassert>
#include <utility>

/// Looking at messages that nobody has received, and setting them apart: they stay where they are,
/// with a mark.
namespace dlaunch::transport {
namespace {

Receive probe_for(std::uint64_t communicator, int from, int tag, std::span<const int> sources) {
  Receive probe;
  probe.kind = Kind::message;
  probe.communicator = communicator;
  probe.from = from;
  probe.tag = tag;
  probe.sources = sources;
  return probe;
}

}  // namespace

std::optional<std::pair<int, Header>> Inbox::peek(std::uint64_t communicator, int from, int tag,
                                                  std::span<const int> sources) const {
  const auto found = first_arrival(probe_for(communicator, from, tag, sources));
  if (!found) return std::nullopt;
  return std::pair{found->from, header_of(*found)};
}

std::optional<Inbox::Apart> Inbox::set_apart(std::uint64_t communicator, int from, int tag,
                                             std::span<const int> sources) {
  const auto found = first_arrival(probe_for(communicator, from, tag, sources));
  if (!found) return std::nullopt;
  Source& s = source(found->from);
  (found->parked != nullptr ? found->parked->is_apart : s.is_apart) = true;
  return Apart{found->from, found->number, header_of(*found)};
}

/// The message is one of the others again. If it was held it may have been parked since.
Inbox::Arrival Inbox::join(const Apart& message) {
  Source& s = source(message.from);
  Parked* parked = s.parked.first();
  while (parked != nullptr && parked->arrival != message.arrival) {
    parked = ParkedList::after(*parked);
  }
  assert(parked != nullptr || (is_stalled(s) && s.arrival == message.arrival));
  (parked != nullptr ? parked->is_apart : s.is_apart) = false;
  return {message.from, message.arrival, parked};
}

void Inbox::take_apart(Receive& receive, const Apart& message) {
  receive.state = Receive::State::waiting;
  take(receive, join(message));
}

void Inbox::put_back(const Apart& message) {
  const Arrival arrival = join(message);
  while (Receive* const wanting = first_wanting(message.from, message.header)) {
    unlist(*wanting);
    if (take(*wanting, arrival)) return;
  }
  answer_probes(arrival);
}

}  // namespace dlaunch::transport
