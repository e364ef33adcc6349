#pragma once

#include "collectives/transport/message/message.hpp"
#include "runtime/base/secret/secret.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

/// The proof of two ranks that they belong to the same job, if the job has a key. The connector
/// sends its Hello and a nonce; the acceptor answers with a nonce and an HMAC over both nonces, the
/// Hello and its own rank; the connector answers with an HMAC over the same data. The two HMACs
/// begin with different labels, and both ranks are in them, so that neither can be mirrored.
/// Everything after that is in the clear. No sockets here.
namespace dlaunch::transport {

using Nonce = std::array<std::byte, 32>;
/// Throws Error{internal} where the kernel has no random bytes.
Nonce fresh_nonce();

/// The data of both HMACs.
struct Meeting {
  Hello hello;  ///< The connector's.
  std::int32_t acceptor = 0;
  std::uint32_t reserved = 0;
  Nonce connector_nonce{};
  Nonce acceptor_nonce{};
};
Mac acceptor_mac(const Key& key, const Meeting& meeting);
Mac connector_mac(const Key& key, const Meeting& meeting);

/// The acceptor's answer: its nonce, then its HMAC.
constexpr std::size_t challenge_bytes = sizeof(Nonce) + sizeof(Mac);
/// The connector's answer to a challenge; nullopt if the acceptor's proof is wrong.
std::optional<Mac> answer_to(BytesView challenge, const Key& key, Meeting meeting);

/// The acceptor's side of one connection, from the first byte until the peer is known. Without a
/// key there is only the Hello, which is believed.
class Acceptance {
 public:
  /// `expected` is our own Hello, from which another's differs in the rank alone. `key` is
  /// borrowed.
  Acceptance(const Hello& expected, const Key* key, const Nonce& own_nonce);

  enum class Verdict { more, admitted, refused };
  /// The most bytes that may be read next: behind them come messages.
  std::size_t wanted() const { return wanted_ - got_; }
  /// Takes in no more than `wanted()`; appends to `answer` what is to be sent.
  Verdict feed(BytesView in, Bytes& answer);
  /// The rank that was admitted.
  int rank() const { return meeting_.hello.rank; }

 private:
  enum class Step { hello, nonce, mac };
  bool is_one_of_us(const Hello& theirs) const;

  Hello expected_;
  const Key* key_;
  Meeting meeting_;
  Step step_ = Step::hello;
  std::array<std::byte, sizeof(Hello)> buffer_{};
  std::size_t wanted_ = sizeof(Hello);
  std::size_t got_ = 0;
};
static_assert(sizeof(Hello) >= sizeof(Nonce) && sizeof(Hello) >= sizeof(Mac));

}  // namespace dlaunch::transport
