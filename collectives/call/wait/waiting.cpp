#include "collectives/call/wait/waiting.hpp"

namespace dlaunch {

using transport::Outgoing;
using transport::Receive;

std::span<const int> Waiting::to_receive() const {
  if (rank) return {&*rank, 1};
  if (receive == nullptr) return ranks;
  if (receive->state == Receive::State::done) return {};
  if (receive->state == Receive::State::filling) return {&receive->source, 1};
  return receive->from == any_source ? receive->sources : std::span(&receive->from, 1);
}

bool Waiting::any() const {
  if (receive == nullptr) return !ranks.empty();
  return receive->from == any_source && receive->state == Receive::State::waiting;
}

std::span<const int> Waiting::to_send() const {
  if (outgoing == nullptr || outgoing->state == Outgoing::State::done) return {};
  return {&outgoing->to, 1};
}

}  // namespace dlaunch
