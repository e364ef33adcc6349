#pragma once

#include "runtime/base/secret/secret.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace dlaunch::store {

/// The job's secret on a control connection: TLS 1.3 with the job's key as an external PSK, always
/// with a fresh key exchange (psk_dhe_ke), without certificates, tickets and early data. A filter
/// between bytes and bytes; whoever owns it moves them. Any thread may call; calls take turns.
class TlsChannel {
 public:
  /// A handshake takes about 700 bytes; before it is over, nothing beyond this is taken in.
  static constexpr std::size_t handshake_bytes_max = 4u << 10;
  /// The first byte of a TLS connection: a handshake record.
  static constexpr std::byte first_byte{0x16};

  /// The client's end. Its first `feed`, with nothing, begins the handshake.
  static std::unique_ptr<TlsChannel> connect(std::string job, const Key& key);
  ~TlsChannel();
  TlsChannel(const TlsChannel&) = delete;
  TlsChannel& operator=(const TlsChannel&) = delete;

  enum class Fed {
    open,
    ended,  ///< The other side has said that nothing more will come.
    /// Nothing works any more; what was appended to `out` tells the other side, and may be sent.
    broken,
  };
  /// Takes in what has arrived; appends what it says to `plain`, and what is to be sent because of
  /// it to `out`.
  Fed feed(BytesView in, Bytes& plain, Bytes& out);
  /// Appends the ciphertext of `plain` to `out`; false before the handshake and after an error.
  bool seal(BytesView plain, Bytes& out);

  bool established() const;
  /// The job whose key the other side has proved; the server's end knows it once established.
  const std::string& identity() const;

  enum class Trouble {
    none,
    not_tls,    ///< The other side speaks something else.
    unproven,   ///< Either side does not know the other's key. A job without one looks the same.
    oversized,  ///< A handshake longer than handshake_bytes_max.
    garbled,    ///< The bytes make no sense, or were changed on the way.
  };
  Trouble trouble() const;
  /// After `broken`: what to throw, `what` being what was tried; Errc::refused where trying again
  /// is of no use.
  Error error(const std::string& what) const;
  /// After `broken`: OpenSSL's reason, for the log.
  std::string reason() const;

 private:
  friend class TlsAcceptor;
  struct State;
  explicit TlsChannel(std::unique_ptr<State> state);

  mutable std::mutex mutex_;
  std::unique_ptr<State> state_;
};

/// The key of a job, for any name: of an unknown job as well, so that a wrong secret and an unknown
/// job cannot be told apart.
using KeyOfJob = std::function<Key(std::string_view job)>;

/// The server's end of many connections.
class TlsAcceptor {
 public:
  explicit TlsAcceptor(KeyOfJob key_of);
  ~TlsAcceptor();
  /// The end of a new connection. It must not outlive the acceptor.
  std::unique_ptr<TlsChannel> accept() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Blocks until the client's handshake is over. Throws TlsChannel::error, Error{timeout}, or
/// Error{unreachable} when the connection ends; `what` begins the sentence. Data that arrives
/// behind the handshake is appended to `plain`.
void shake_hands(TlsChannel& channel, int socket, Bytes& plain, Clock::time_point deadline,
                 const std::string& what);

}  // namespace dlaunch::store
