#pragma once

#include "runtime/store/protocol/wire.hpp"

#include <optional>

namespace dlaunch::wire {

/// What is particular about a request of the store's.
enum : unsigned {
  plain = 0,
  changes = 1,  ///< Repeated it would change something a second time, so the answer is remembered.
  waits = 2,    ///< It is answered late, and changes nothing when its waiter goes.
};

/// One act of several lambdas, each for the messages that it takes.
template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

template <class M, unsigned Traits = plain>
struct Operation {
  using Message = M;
  static constexpr unsigned traits = Traits;
};

template <class... Operations>
struct OperationTable {
  static constexpr bool contains(Type type) { return ((type == Operations::Message::type) || ...); }
  static constexpr bool has(Type type, unsigned trait) {
    return ((type == Operations::Message::type && (Operations::traits & trait) != 0) || ...);
  }
  /// Gives the request to `act`, which has to take each of the messages. False where it is none of
  /// them, or malformed.
  template <class Act>
  static bool decode(Type type, BytesView payload, const Act& act) {
    const auto take = [&]<class Message>(std::optional<Message> message) {
      if (message) act(*message);
      return message.has_value();
    };
    return ((type == Operations::Message::type &&
             take(wire::decode<typename Operations::Message>(payload))) ||
            ...);
  }
};

/// All requests of the store's: another one is a line here.
using Requests = OperationTable<
    Operation<Set, changes>, Operation<SetLeased, changes>, Operation<Get>, Operation<MultiGet>,
    Operation<MultiSet, changes>, Operation<Add, changes>, Operation<CompareSet, changes>,
    Operation<Append, changes>, Operation<Erase, changes>, Operation<List>, Operation<Count>,
    Operation<Wait, waits>, Operation<WaitGet, waits>, Operation<Push, changes>,
    Operation<TryPop, changes>, Operation<Pop, changes | waits>, Operation<QueueSize>,
    Operation<Watch, waits>, Operation<Cancel>, Operation<Barrier, waits>,
    Operation<AllGather, waits>, Operation<Renew>, Operation<EndLeases, changes>>;

}  // namespace dlaunch::wire
