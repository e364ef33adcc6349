#pragma once

#include "runtime/store/protocol/wire.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

namespace dlaunch::store {

/// The answers to one session's changes, so that a change that is sent again after a broken
/// connection counts once. Bounded: it remembers as many as a client may have unanswered. The
/// oldest go first; big ones go early, and leave their number behind.
class Replies {
 public:
  struct Reply {
    wire::Type type{};
    BytesView payload;
    bool forgotten = false;  ///< It was answered, but the answer is too old or too big to be kept.
  };

  /// `memory` counts what is kept; null: nobody does.
  explicit Replies(std::shared_ptr<MemoryBudget> memory = nullptr) : charge_(std::move(memory)) {}

  /// Nullopt: this request was not answered before. Valid until the next call of remember.
  std::optional<Reply> find(std::uint64_t request) const;
  void remember(std::uint64_t request, wire::Type type, BytesView payload);

 private:
  struct Kept {
    std::uint64_t request = 0;
    wire::Type type{};
    bool forgotten = false;
    std::uint8_t small_size = 0;
    std::array<std::byte, 16> small{};
    Bytes big;
  };
  void forget_big();
  void settle();

  std::deque<Kept> kept_;
  std::uint64_t highest_ = 0;  ///< The highest number: one comparison shows that a request is new.
  std::size_t big_bytes_ = 0;
  MemoryCharge charge_;
};

}  // namespace dlaunch::store
