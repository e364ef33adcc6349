#pragma once

#include <dlaunch/export.hpp>
#include <dlaunch/options.hpp>
#include <dlaunch/tensor.hpp>

#include <cstddef>
#include <memory>

namespace dlaunch {

class MatchedMessage;

/// What a received message was.
struct Received {
  int source = any_source;
  int tag = 0;
  DType dtype = DType::u8;
  std::size_t count = 0;  ///< Elements.
  bool operator==(const Received&) const = default;
};

/// A message that Communicator::match has found and recv_matched receives: no other receive takes
/// it, and no probe finds it. One that is destroyed before it was received goes back to where it
/// was, before all that came behind it. For the thread that uses its communicator, which it may
/// outlive; nothing is left to do then.
class [[nodiscard, gnu::visibility("default")]] Message {
 public:
  Message() noexcept;
  explicit Message(std::shared_ptr<MatchedMessage> matched) noexcept;
  Message(Message &&) noexcept;
  Message& operator=(Message&&) noexcept;
  ~Message();

  /// Made without a match, received, or moved from.
  [[nodiscard]] bool is_empty() const noexcept { return matched_ == nullptr; }
  /// Its source, tag, type and count. An empty one has no source: any_source.
  [[nodiscard]] Received what() const noexcept;

 private:
  friend class Communicator;
  std::shared_ptr<MatchedMessage> matched_;
};

/// One message of a batch.
struct Transfer {
  static Transfer send(const ConstTensorView& data, int to, int tag = 0) {
    return {data, {}, to, tag, true};
  }
  static Transfer recv(const TensorView& data, int from, int tag = 0) {
    return {{}, data, from, tag, false};
  }
  static Transfer recv_up_to(const TensorView& data, int from, int tag = 0) {
    return {{}, data, from, tag, false, true};
  }
  ConstTensorView out;
  TensorView in;
  int peer = 0;
  int tag = 0;
  bool is_send = true;
  bool up_to = false;  ///< Receives fewer elements, too.
};

}  // namespace dlaunch
