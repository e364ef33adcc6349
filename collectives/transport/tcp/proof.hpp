#pragma once

#include "collectives/transport/message/message.hpp"
#include "runtime/base/secret/secret.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

/// How two ranks prove to each other that they belong to the same job, where it has a key. The
/// connector sends its Hello and a nonce; the acceptor answers with a nonce and an HMAC over both,
/// the Hello and its own rank; the connector answers with an HMAC over the same. The two HMACs
/// begin with different labels, and both ranks are in them, so that neither can be mirrored. All
/// that follows is in the clear. No sockets here.
namespace dlaunch::transport {

using Nonce = std::array<std::byte, 32>;
/// Throws Error{internal} where the kernel has no random bytes.
Nonce fresh_nonce();

/// What both HMACs are about.
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
/// The connector's answer to a challenge; nullopt when the acceptor has proved nothing.
std::optional<Mac> answer_to(BytesView challenge, const Key& key, Meeting meeting);

/// The acceptor's end of one connection, from the first byte to who is there. Without a key the
/// Hello is all, and is believed.
class Acceptance {
 public:
  /// `expected` is our own Hello: another's differs from it in the rank alone. `key` is borrowed.
  Acceptance(const Hello& expected, const Key* key, const Nonce& own_nonce);

  enum class Verdict { more, admitted, refused };
  /// At most this much is to be read next: what follows are messages.
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
