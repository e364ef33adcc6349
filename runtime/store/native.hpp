#pragma once

#include "runtime/store/host.hpp"
#include "runtime/store/replies.hpp"
#include "runtime/store/session.hpp"
#include "runtime/store/wire.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace dlaunch::store {

class NativeSession;

/// A namespace served by the native protocol: what its sessions share is who they are (the host
/// decides) and the answers that a reconnecting client may ask for again. No I/O.
class NativeNamespace final : public Namespace {
 public:
  NativeNamespace(Host& host, Limits limits) : Namespace(limits), host_(host) {}

  std::unique_ptr<Session> open(std::uint64_t client, Outbox& out) override;
  void tick(Clock::time_point now) override;
  std::optional<Clock::time_point> next_deadline() const override;

 private:
  friend class NativeSession;

  /// What is known of a client beyond its connection.
  struct Known {
    Replies replies;
    NativeSession* connected = nullptr;
    Clock::time_point forget;  ///< When it is not connected.
  };
  void forget_oldest();

  Host& host_;
  /// Ordered, so that nodes stay where they are.
  std::map<std::uint64_t, Known> known_;
  std::deque<std::pair<Clock::time_point, std::uint64_t>> left_;  ///< In the order of leaving.
};

/// One native connection: preface, HELLO, then requests.
class NativeSession final : public Session {
 public:
  NativeSession(NativeNamespace& space, std::uint64_t client, Outbox& out);
  ~NativeSession() override;

  bool feed(BytesView in, Clock::time_point now) override;
  void answer(const Effect& effect) override;

 private:
  friend class NativeNamespace;
  enum class State { preface, hello, welcomed, closed };

  /// How much of `in` was complete; nullopt: garbage.
  std::optional<std::size_t> consume(BytesView in);
  bool open(BytesView preface);
  bool dispatch(const wire::FrameHeader& header, BytesView payload);
  bool greet(const wire::FrameHeader& header, BytesView payload);
  bool request(const wire::FrameHeader& header, BytesView payload);
  bool other(const wire::FrameHeader& header, BytesView payload);
  bool answered_before(const wire::FrameHeader& header);
  void fail(std::uint64_t request, Errc code, std::string sentence);
  template <class Message>
  void send(std::uint64_t request, const Message& message, std::uint16_t flags = wire::reply);
  bool fits(std::uint64_t request, std::size_t payload_bytes);
  void gathered(std::uint64_t request, const Gathered& answer);
  /// A reconnect has taken this session over.
  void superseded();

  NativeNamespace& space_;
  const std::uint64_t client_;
  Outbox& out_;
  State state_ = State::preface;
  bool goodbye_ = false;
  Bytes unread_;
  Clock::time_point now_;
  std::uint64_t session_ = 0;
  std::uint64_t epoch_ = 0;
  NativeNamespace::Known* known_ = nullptr;
  std::uint64_t change_ = 0;  ///< The change that is being made, whose answer is to be remembered.
};

}  // namespace dlaunch::store
