#pragma once

#include "runtime/store/protocol/wire.hpp"

#include <optional>

/// Functions that follow from the table of requests.
namespace dlaunch::wire {

/// Combines several lambdas into one act; each takes some of the messages.
template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

/// Gives the request to `act`, which has to take each of the messages. False where it is none of
/// them, or malformed.
template <class Act>
bool decode_request(Type type, BytesView payload, const Act& act) {
  return Requests::any([&]<class Each>(Each) {
    if (type != Each::Message::type) return false;
    const auto message = decode<typename Each::Message>(payload);
    if (message) act(*message);
    return message.has_value();
  });
}

static_assert(!Requests::any([](auto operation) {
  return party_of(decltype(operation)::Message::type) != Party::store;
}));

}  // namespace dlaunch::wire
