#pragma once

#include <dlaunch/store.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

/// The seam between us and the library that holds all cryptography, which is libdlaunch_tls.so: a
/// process without a key never loads it, and so never OpenSSL, whose relocations alone would cost
/// every start about a millisecond. Nothing here throws, and no function of one library is needed
/// in the other.
namespace dlaunch {

constexpr std::size_t key_bytes = 32;
constexpr std::size_t mac_bytes = 32;
using KeyView = std::span<const std::byte, key_bytes>;
using MacView = std::span<const std::byte, mac_bytes>;

/// The job's secret on a control connection: TLS 1.3 with the job's key as an external PSK, always
/// with a fresh key exchange (psk_dhe_ke), without certificates, tickets and early data. A filter
/// between bytes and bytes; whoever owns it moves them. Any thread may call; calls take turns.
class TlsChannel {
 public:
  static constexpr std::size_t job_bytes_max = 1015;
  /// A handshake takes about 700 bytes; before it is over, nothing beyond this is taken in.
  static constexpr std::size_t handshake_bytes_max = 4u << 10;
  /// The first byte of a TLS connection: a handshake record.
  static constexpr std::byte first_byte{0x16};

  virtual ~TlsChannel() = default;

  enum class Fed {
    open,
    ended,  ///< The other side has said that nothing more will come.
    /// Nothing works any more; what was appended to `out` tells the other side, and may be sent.
    broken,
  };
  /// Takes in what has arrived; appends what it says to `plain`, and what is to be sent because of
  /// it to `out`. A client's first, with nothing, begins the handshake.
  virtual Fed feed(BytesView in, Bytes& plain, Bytes& out) noexcept = 0;
  /// Appends the ciphertext of `plain` to `out`; false before the handshake and after an error.
  virtual bool seal(BytesView plain, Bytes& out) noexcept = 0;

  virtual bool established() const noexcept = 0;
  /// The job whose key the other side has proved; the server's end knows it once established.
  virtual const std::string& identity() const noexcept = 0;

  enum class Trouble {
    none,
    not_tls,    ///< The other side speaks something else.
    unproven,   ///< Either side does not know the other's key. A job without one looks the same.
    oversized,  ///< A handshake longer than handshake_bytes_max.
    garbled,    ///< The bytes make no sense, or were changed on the way.
    no_memory,  ///< Memory ran out here.
  };
  virtual Trouble trouble() const noexcept = 0;
  /// After `broken`, from when on it does not change: OpenSSL's reason, for the log.
  virtual const std::string& reason() const noexcept = 0;
};

/// The server's end of many connections, which must not outlive it.
class TlsAcceptor {
 public:
  virtual ~TlsAcceptor() = default;
  /// The end of a new connection; null if there is no memory for it.
  virtual std::unique_ptr<TlsChannel> accept() const noexcept = 0;
};

/// What libdlaunch_tls.so does. Functions that can fail return false or null, and why.
class Crypto {
 public:
  virtual ~Crypto() = default;

  /// HKDF-SHA256 (RFC 5869, no salt).
  virtual bool derive(BytesView from, std::string_view info, std::span<std::byte, key_bytes> out,
                      std::string& why) noexcept = 0;
  /// HMAC-SHA256.
  virtual bool authenticate(KeyView key, BytesView message, std::span<std::byte, mac_bytes> out,
                            std::string& why) noexcept = 0;
  /// Compares in a time that does not depend on the bytes.
  virtual bool same(MacView one, MacView other) noexcept = 0;

  virtual std::unique_ptr<TlsChannel> connect(std::string_view job, KeyView key,
                                              std::string& why) noexcept = 0;
  enum class Found { key, none, no_memory };
  /// Writes a job's key; `none` where there is none, and why.
  using FindKey = std::function<Found(std::string_view job, std::span<std::byte, key_bytes> key,
                                      std::string& why)>;
  virtual std::unique_ptr<TlsAcceptor> make_acceptor(FindKey find, std::string& why) noexcept = 0;
};

/// What libdlaunch_tls.so offers under the name dlaunch_crypto: its one Crypto, which lives as long
/// as the process; or null, and why. `version` is the caller's DLAUNCH_VERSION.
using CryptoEntry = Crypto*(const char* version, std::string* why);

/// Loads the library when called for the first time. Any thread may call. Throws
/// Error{unsupported} with what is lacking.
Crypto& crypto();

}  // namespace dlaunch
