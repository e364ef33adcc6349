#pragma once

#include "runtime/store/c10d/barriers.hpp"
#include "runtime/store/c10d/decoder.hpp"
#include "runtime/store/c10d/waiting.hpp"
#include "runtime/store/core/session.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::c10d {

class Session;

/// The namespace that the PyTorch clients of one attempt share; the next attempt gets another.
class Namespace : public store::Namespace {
 public:
  explicit Namespace(store::Limits limits = {});
  /// A session for a new connection, which the protocol calls `client`; `client` is never reused.
  std::unique_ptr<store::Session> open(std::uint64_t client, store::Outbox& out);
  /// The clients that wait, by number; each with the first of its waits. Changes nothing.
  std::vector<Waiting> waiting();

  Barriers barriers;
  /// Hears why a client's connection is closed, which the protocol cannot tell the client. Must not
  /// call the namespace.
  std::function<void(std::uint64_t client, const std::string& why)> hear_refusal;

 private:
  friend class Session;
  std::map<std::uint64_t, const Session*> open_;
};

/// One PyTorch client's connection. Replies keep the order of their requests: what is asked behind
/// a pending wait is done at once and answered after it. The protocol has no error replies, so all
/// that can be done about a bad request is to close. Not thread-safe; the namespace and the outbox
/// must outlive it.
class Session final : public store::Session {
 public:
  Session(std::uint64_t client, Namespace& shared, store::Outbox& out);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  bool feed(BytesView in, Clock::time_point now) override;
  void answer(const store::Effect& effect) override;
  void fail() noexcept override { out_.fail(); }
  std::size_t unread_bytes() const override { return kept_.capacity(); }
  /// The first wait that has no answer, with its keys, also those that have been set.
  std::optional<Waiting> waiting() const;

 private:
  /// The description of a wait.
  struct Story {
    std::vector<std::string> keys = {};  ///< Its first told_keys_max keys.
    std::int64_t world = 0;              ///< The number a barrier waits for.
    Clock::time_point since{};
  };
  /// A wait that has no answer yet, and the replies that must not overtake it.
  struct Wait {
    std::uint64_t request = 0;
    std::string barrier;  ///< The key, where it is a barrier.
    std::size_t keys = 0;
    bool answered = false;
    Bytes after;
    Story story;
  };
  /// A multi_get that is answered value by value, as the client takes them: as a whole the answer
  /// may be a hundred thousand times as large as its request. A key's value is read when its turn
  /// comes.
  struct Answering {
    std::vector<std::string> keys;
    std::size_t next = 0;
  };

  std::optional<std::size_t> consume(BytesView unread);
  void serve(const Request& request);
  void deliver();
  void refuse(const std::string& why);
  void multi_get(store::Caller by, const Request& request);
  void answer_more();
  std::size_t held_bytes() const;
  void wait(store::Caller by, const Request& request);
  void arrive(store::Caller by, const Request& request);
  bool begin_wait(store::Caller by, std::string_view barrier,
                  std::span<const std::string_view> keys, std::int64_t world);
  Story story_of(std::span<const std::string_view> keys, std::int64_t world) const;
  void finish_wait(std::uint64_t request);
  void drop_wait(Wait& wait);
  void drop_waits();
  void cancel_waits();
  void reply(Op op, const store::Answer& answer, Bytes& out);
  /// The place of the next reply: the outbox, or the queue behind the last pending wait.
  Bytes& replies() { return waits_.empty() ? out_.buffer() : waits_.back().after; }

  std::uint64_t client_;
  Namespace& shared_;
  store::Outbox& out_;
  std::optional<Decoder> decoder_;  ///< Once the dialect is known.
  Dialect dialect_ = Dialect::a;
  bool closed_ = false;
  std::uint64_t next_request_ = 0;
  std::vector<Wait> waits_;  ///< In the order of the requests.
  /// The last wait that was given up. PyTorch gives up and asks again, to look at other things.
  Story given_up_;
  Clock::time_point now_{};  ///< The time of the last feed.
  std::optional<Answering> answering_;
  Bytes kept_;          ///< The rest of the last feed: an incomplete request, or
                        ///< all that came after the outbox was congested.
  BytesView expected_;  ///< The expected value of the compare_set that is being served.
};

}  // namespace dlaunch::c10d
