#pragma once

#include "runtime/base/flat_map.hpp"
#include "runtime/store/core/key_values.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// The seam between the server, which moves bytes, and the protocols, which never see a socket. The
/// server knows connections, outboxes and time; a Session decodes one connection's bytes into calls
/// on a Namespace and encodes the answers; a test plays the server by handing bytes in and reading
/// an outbox of its own.
namespace dlaunch::store {

/// The place where a session writes. Nothing blocks: the server sends after each batch and drops a
/// peer that does not read. It lives as long as the session.
class Outbox {
 public:
  virtual ~Outbox() = default;
  /// A buffer to append to at once; valid until the next call of any function here.
  virtual Bytes& buffer() = 0;
  /// Likewise, for whole frames that tell nothing that was recorded: they may pass earlier ones
  /// that wait until a change is durable.
  virtual Bytes& ahead() = 0;
  /// A block that many connections send, after what was appended before.
  virtual void share(std::shared_ptr<const Bytes> block) = 0;
  /// Bytes written so far are still sent, then the connection ends. More bytes are not fed.
  virtual void close() = 0;
  /// Whether so much is queued, or so much time spent, that a session should take up no further
  /// request now. It keeps its input, and is fed again with nothing new when the peer has read
  /// some, or the others have had their turn.
  virtual bool congested() const = 0;
  /// The last appended data is incomplete: the connection ends, and nothing more is sent.
  virtual void fail() noexcept = 0;
};

/// One connection's protocol state. Ends with its connection; its destructor leaves the namespace.
class Session {
 public:
  virtual ~Session() = default;
  /// Takes everything that has arrived since the last call. The session keeps an incomplete
  /// request, and whatever is left when the outbox is congested. False: the bytes are not of this
  /// protocol; the connection is closed at once and counted as garbage.
  virtual bool feed(BytesView in, Clock::time_point now) = 0;
  /// The answer to one of this session's requests, at once or much later.
  virtual void answer(const Effect& effect) = 0;
  /// An answer could not be made for lack of memory: the session is at an end.
  virtual void fail() noexcept = 0;
  /// The bytes of its input that it keeps.
  virtual std::size_t unread_bytes() const = 0;
};

/// Why a request that names so many keys is refused: by its namespace, or before it is decoded.
std::string too_many_keys(std::size_t keys, std::size_t limit);

/// One key-value namespace, who is connected to it, and the protocol they speak. A protocol derives
/// from it to add what its sessions share.
///
/// A session calls `values` with `effects` as the last argument and then deliver(), before it calls
/// `values` again, because the answers borrow from it: carry_out() does both.
class Namespace {
 public:
  explicit Namespace(Limits limits = {}) : values(limits) {}
  virtual ~Namespace() = default;
  Namespace(const Namespace&) = delete;
  Namespace& operator=(const Namespace&) = delete;

  /// Sends answers for `client` to `session` from now on; a session does it when it begins here.
  void attach(std::uint64_t client, Session& session) { sessions_.emplace(client, &session); }
  /// Ends the client's waits; a session does it when it ends, at the latest.
  void detach(std::uint64_t client) {
    if (sessions_.erase(client) == 0) return;
    values.disconnect(client);
    values.settle();
  }

  /// Calls `part` with each client that is attached, which it may detach.
  template <class Part>
  void for_each_client(Part part) {
    for (auto next = sessions_.begin(); next != sessions_.end();) part((next++)->first);
  }

  /// Hands every effect to its session. Effects for clients that are gone are dropped, and a
  /// session whose answer cannot be made ends alone.
  void deliver() {
    for (const Effect& effect : effects) {
      const auto session = sessions_.find(effect.to.client);
      if (session == sessions_.end()) continue;
      try {
        session->second->answer(effect);
      } catch (const std::exception&) {
        session->second->fail();
      }
    }
    effects.clear();
    values.settle();
  }

  /// Makes a call of `values` and delivers what comes of it, or abandons it.
  template <class Call>
  void carry_out(Call call) {
    try {
      call();
    } catch (...) {
      abandon();
      throw;
    }
    deliver();
  }
  /// A call has failed half way, for want of memory say. The answers that it has made may point to
  /// memory that is gone, and others were not made: sessions that would wait for them in vain end.
  /// Takes no memory.
  void abandon() noexcept {
    for (const Effect& effect : effects) fail(effect.to.client);
    effects.clear();
    values.overdue([this](std::uint64_t client) { fail(client); });
  }

  /// Answers what has expired. The server calls it when next_deadline() has come.
  virtual void tick(Clock::time_point now) {
    carry_out([&] { values.tick(now, effects); });
  }
  virtual std::optional<Clock::time_point> next_deadline() const { return values.next_deadline(); }

  KeyValues values;
  Effects effects;

 private:
  void fail(std::uint64_t client) noexcept {
    const auto session = sessions_.find(client);
    if (session != sessions_.end()) session->second->fail();
  }

  FlatMap<std::uint64_t, Session*> sessions_;
};

}  // namespace dlaunch::store
