#pragma once

#include "runtime/store/core/session.hpp"
#include "runtime/store/native/bulk_request.hpp"
#include "runtime/store/native/native_spaces.hpp"
#include "runtime/store/protocol/replies.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace dlaunch::store {

/// One native connection: preface, HELLO, then requests, which go to the namespace it sits in.
class NativeSession final : public Session {
 public:
  NativeSession(NativeSpaces& spaces, std::uint64_t client, Outbox& out);
  ~NativeSession() override;

  bool feed(BytesView in, Clock::time_point now) override;
  void answer(const Effect& effect) override;
  void fail() noexcept override;
  std::size_t unread_bytes() const override {
    return unread_.capacity() + (bulk_ ? bulk_->held_bytes() : 0);
  }

 private:
  friend class NativeSpaces;
  enum class State { preface, hello, welcomed, closed };

  /// How much of `in` was complete; nullopt: garbage.
  std::optional<std::size_t> consume(BytesView in);
  void cut_off_taken_up();
  bool open(BytesView preface);
  bool dispatch(const wire::FrameHeader& header, BytesView payload);
  bool greet(const wire::FrameHeader& header, BytesView payload);
  bool store_request(const wire::FrameHeader& header, BytesView payload);
  /// The next part of the bulk request, and its answer where it was the last one.
  void go_on_with_bulk();
  bool other(const wire::FrameHeader& header, BytesView payload);
  /// An answer of the backend's.
  void pass_on(const wire::FrameHeader& header, BytesView payload, bool remember);
  bool answered_before(const wire::FrameHeader& header);
  void refuse(std::uint64_t request, Errc code, std::string sentence);
  /// Nothing was recorded, so the answer does not wait for what was recorded before, and may not be
  /// durable for long.
  void refuse_change(std::uint64_t request, std::string why);
  template <class Message>
  void send(std::uint64_t request, const Message& message, std::uint16_t flags = wire::reply);
  /// As send, with this block as the value.
  template <class Message>
  void share(std::uint64_t request, const Message& message, std::uint16_t flags,
             const std::shared_ptr<const Bytes>& block);
  bool fits(std::uint64_t request, std::size_t payload_bytes);
  void gathered(std::uint64_t request, const Gathered& answer);
  /// Requests go there from now on, or, before the welcome, from then on; null: nowhere.
  void seat(NativeSpace* space);
  /// As seat, at once. Its waits where it sat are refused with `why`.
  void sit(NativeSpace* space, std::string_view why);
  /// Leaves its namespace, without a word.
  void leave();
  std::uint64_t epoch() const;
  Backend::From from() const { return {client_, session_}; }
  /// A reconnect has taken this session over.
  void superseded();

  NativeSpaces& spaces_;
  const std::uint64_t client_;
  Outbox& out_;
  State state_ = State::preface;
  Role role_ = Role::node;
  bool known_ = false;  ///< The host may know it, and is to hear of its end.
  bool goodbye_ = false;
  Bytes unread_;
  std::size_t taken_up_ = 0;  ///< Of those; they are cut off now and then.
  Clock::time_point now_;
  std::uint64_t session_ = 0;
  std::uint64_t welcome_epoch_ = 0;
  NativeSpace* space_ = nullptr;
  SpaceId wanted_ = first_space;  ///< Before the welcome.
  Replies* replies_ = nullptr;    ///< This session's where it sits; null before its first change.
  std::unique_ptr<BulkRequest> bulk_;  ///< A bulk request; later requests wait until it is done.
  std::uint64_t change_ = 0;           ///< The change under way, whose answer is remembered.
};

}  // namespace dlaunch::store
