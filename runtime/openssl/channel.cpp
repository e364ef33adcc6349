#include "runtime/openssl/channel.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include <openssl/err.h>
#include <openssl/ssl.h>

namespace dlaunch::openssl {
namespace {

/// The empty job ("whatever lives here") needs a name, too, and other uses of a PSK another one.
constexpr std::string_view identity_prefix = "dlaunch1:";
constexpr std::size_t identity_bytes_max = identity_prefix.size() + TlsChannel::job_bytes_max;
/// The suites that go with a SHA-256 key; every implementation has the first.
constexpr const char* suites = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr std::array<unsigned char, 2> session_suite{0x13, 0x01};  // TLS_AES_128_GCM_SHA256
constexpr std::size_t record_bytes = 16u << 10;

struct Free {
  void operator()(SSL_CTX* settings) const { ::SSL_CTX_free(settings); }
  void operator()(SSL* connection) const { ::SSL_free(connection); }
  void operator()(SSL_SESSION* session) const { ::SSL_SESSION_free(session); }
};
using Settings = std::unique_ptr<SSL_CTX, Free>;

struct KeyCopy {
  std::array<std::byte, key_bytes> bytes{};
  ~KeyCopy() { ::explicit_bzero(bytes.data(), bytes.size()); }
};

std::string unprepared() { return "cannot prepare TLS: " + complaint(); }

/// Whether this thread's OpenSSL calls have complained of a want of memory since ERR_clear_error.
bool lacks_memory() {
  const auto says_so = [](unsigned long error) {
    return ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE;
  };
  return says_so(::ERR_peek_error()) || says_so(::ERR_peek_last_error());
}

/// Both ends insist on these settings. The system's openssl.cnf may have said otherwise.
Settings make_settings() {
  ::ERR_clear_error();
  Settings settings(::SSL_CTX_new(::TLS_method()));
  SSL_CTX* s = settings.get();
  if (s == nullptr || SSL_CTX_set_min_proto_version(s, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(s, TLS1_3_VERSION) != 1 ||
      ::SSL_CTX_set_ciphersuites(s, suites) != 1 || ::SSL_CTX_set_num_tickets(s, 0) != 1) {
    return nullptr;
  }
  ::SSL_CTX_clear_options(s, SSL_OP_ALLOW_NO_DHE_KEX);
  ::SSL_CTX_set_options(s, SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(s, SSL_SESS_CACHE_OFF);
  // Ten thousand idle connections should not keep two buffers each.
  SSL_CTX_set_mode(s, SSL_MODE_RELEASE_BUFFERS);
  // No certificate is trusted, so a server that does not know the key gets nowhere.
  ::SSL_CTX_set_verify(s, SSL_VERIFY_PEER, nullptr);
  return settings;
}

/// The key as OpenSSL wants an external PSK.
SSL_SESSION* session_of(SSL* connection, const KeyCopy& key) {
  std::unique_ptr<SSL_SESSION, Free> session(::SSL_SESSION_new());
  const SSL_CIPHER* suite = ::SSL_CIPHER_find(connection, session_suite.data());
  const auto* bytes = reinterpret_cast<const unsigned char*>(key.bytes.data());
  if (!session || suite == nullptr ||
      ::SSL_SESSION_set1_master_key(session.get(), bytes, key.bytes.size()) != 1 ||
      ::SSL_SESSION_set_cipher(session.get(), suite) != 1 ||
      ::SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1) {
    return nullptr;
  }
  return session.release();
}

class Channel final : public TlsChannel {
 public:
  /// The client's end.
  Channel(SSL_CTX* shared, std::string_view job, KeyView key)
      : settings_(shared),
        identity_(job),
        wire_identity_(std::string(identity_prefix).append(job)) {
    std::copy(key.begin(), key.end(), key_.emplace().bytes.begin());
    open();
  }
  /// The server's end, which learns the client's job.
  Channel(SSL_CTX* shared, const Crypto::FindKey& find) : settings_(shared), find_(&find) {}

  Fed feed(BytesView arrived, Bytes& plain, Bytes& out) noexcept override;
  bool seal(BytesView plain, Bytes& out) noexcept override;
  bool established() const noexcept override {
    const std::lock_guard lock(mutex_);
    return established_;
  }
  const std::string& identity() const noexcept override { return identity_; }
  Trouble trouble() const noexcept override {
    const std::lock_guard lock(mutex_);
    return trouble_;
  }
  const std::string& reason() const noexcept override { return reason_; }

 private:
  static Channel& of(SSL* connection) {
    return *static_cast<Channel*>(::SSL_get_ex_data(connection, 0));
  }
  static int offer(SSL* connection, const EVP_MD* digest, const unsigned char** name,
                   std::size_t* bytes, SSL_SESSION** session);
  static int find(SSL* connection, const unsigned char* name, std::size_t bytes,
                  SSL_SESSION** session);

  bool client() const { return find_ == nullptr; }
  void open();
  void take(BytesView bytes);
  void take_hello(BytesView bytes);
  void handshake();
  void take_handshake(BytesView& arrived);
  bool read(Bytes& plain);
  void drain(Bytes& to) const;
  void fail(Trouble what, std::string why);
  void fail_by_openssl();
  void run_out_of_memory() noexcept;

  mutable std::mutex mutex_;
  SSL_CTX* const settings_;
  const Crypto::FindKey* const find_ = nullptr;
  std::optional<KeyCopy> key_;  ///< The client's.
  std::string identity_, wire_identity_;
  std::unique_ptr<SSL, Free> ssl_;
  BIO* in_ = nullptr;  ///< Owned by ssl_, both.
  BIO* out_ = nullptr;
  Bytes hello_;  ///< The server's, until there is all of it.
  std::size_t handshake_bytes_ = 0;
  bool established_ = false;
  Trouble trouble_ = Trouble::none;
  std::string reason_;
};

void Channel::fail(Trouble what, std::string why) {
  trouble_ = what;
  if (reason_.empty()) reason_ = std::move(why);
}

/// With OpenSSL's reason.
void Channel::fail_by_openssl() {
  fail(lacks_memory() ? Trouble::no_memory : Trouble::garbled, complaint());
}

void Channel::run_out_of_memory() noexcept {
  trouble_ = Trouble::no_memory;
  reason_ = "out of memory";  // So short a text takes none.
}

void Channel::open() {
  ::ERR_clear_error();
  ssl_.reset(::SSL_new(settings_));
  in_ = ::BIO_new(::BIO_s_mem());
  out_ = ::BIO_new(::BIO_s_mem());
  if (!ssl_ || in_ == nullptr || out_ == nullptr) {
    ::BIO_free(in_);
    ::BIO_free(out_);
    ssl_.reset();
    return fail(lacks_memory() ? Trouble::no_memory : Trouble::garbled, unprepared());
  }
  ::SSL_set_bio(ssl_.get(), in_, out_);
  if (::SSL_set_ex_data(ssl_.get(), 0, this) != 1) {
    ssl_.reset();
    return run_out_of_memory();
  }
  if (client()) {
    ::SSL_set_psk_use_session_callback(ssl_.get(), &Channel::offer);
    ::SSL_set_connect_state(ssl_.get());
  } else {
    ::SSL_set_psk_find_session_callback(ssl_.get(), &Channel::find);
    ::SSL_set_accept_state(ssl_.get());
  }
}

// ---- The key: called from C ----

int Channel::offer(SSL* connection, const EVP_MD*, const unsigned char** name, std::size_t* bytes,
                   SSL_SESSION** session) {
  const Channel& self = of(connection);
  *session = session_of(connection, *self.key_);
  *name = reinterpret_cast<const unsigned char*>(self.wire_identity_.data());
  *bytes = self.wire_identity_.size();
  return *session != nullptr ? 1 : 0;
}

int Channel::find(SSL* connection, const unsigned char* name, std::size_t bytes,
                  SSL_SESSION** session) {
  Channel& self = of(connection);
  *session = nullptr;
  const std::string_view wanted(reinterpret_cast<const char*>(name), bytes);
  // No key goes by such a name, and OpenSSL ends the handshake for want of one.
  if (bytes > identity_bytes_max || !wanted.starts_with(identity_prefix)) return 1;
  try {
    self.identity_ = wanted.substr(identity_prefix.size());
    KeyCopy key;
    const auto found = (*self.find_)(self.identity_, key.bytes, self.reason_);
    if (found == Crypto::Found::no_memory) self.run_out_of_memory();
    if (found == Crypto::Found::key) *session = session_of(connection, key);
  } catch (...) {
    self.run_out_of_memory();
  }
  return *session != nullptr ? 1 : 0;
}

// ---- The handshake ----

void Channel::take(BytesView bytes) {
  if (bytes.empty()) return;
  if (::BIO_write(in_, bytes.data(), static_cast<int>(bytes.size())) <= 0) {
    run_out_of_memory();
  }
}

/// OpenSSL's state takes a hundred times the bytes that a stranger sends, so it is made only when
/// the whole client hello is there. A client without the key gets no further. Our own hello is one
/// record.
void Channel::take_hello(BytesView bytes) {
  constexpr std::size_t record_header = 5, message_header = 4;
  hello_.insert(hello_.end(), bytes.begin(), bytes.end());
  if (hello_.size() < record_header + message_header) return;
  const auto at = [&](std::size_t i) { return std::to_integer<std::size_t>(hello_[i]); };
  const std::size_t record = record_header + (at(3) << 8 | at(4));
  const std::size_t message = record_header + message_header + (at(6) << 16 | at(7) << 8 | at(8));
  if (record > handshake_bytes_max) return fail(Trouble::oversized, "a client hello too long");
  if (message > record) return fail(Trouble::garbled, "a client hello in several records");
  if (hello_.size() < record) return;
  open();
  if (ssl_) take(hello_);
  Bytes().swap(hello_);
}

void Channel::handshake() {
  ::ERR_clear_error();
  const int result = ::SSL_do_handshake(ssl_.get());
  if (result == 1) {
    // Without certificates there is no other way, but everything depends on it, so it is checked.
    established_ = ::SSL_session_reused(ssl_.get()) == 1;
    if (!established_) fail(Trouble::unproven, "the handshake went without the key");
    return;
  }
  if (trouble_ != Trouble::none) return;  // Its key could not be looked up.
  if (::SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ) return;
  if (lacks_memory()) return fail_by_openssl();
  const int why = ERR_GET_REASON(::ERR_peek_error());
  // The signs of a wrong key at either end: a binder or a record that does not verify, an alert
  // about that, or a server that tries a certificate instead. An end that has no memory says other
  // things.
  const bool alert = why > SSL_AD_REASON_OFFSET && why != SSL_R_TLSV1_ALERT_INTERNAL_ERROR &&
                     why != SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE;
  const bool other_key = why == SSL_R_BINDER_DOES_NOT_VERIFY || why == SSL_R_BAD_PSK;
  const bool wrong_key = other_key || why == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM ||
                         why == SSL_R_CERTIFICATE_VERIFY_FAILED ||
                         why == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC;
  fail(alert || wrong_key ? Trouble::unproven : Trouble::garbled,
       other_key ? "its secret is another one" : complaint());
}

/// Takes the handshake's part of what has arrived.
void Channel::take_handshake(BytesView& arrived) {
  constexpr std::byte alert{0x15};
  const bool first = client() && handshake_bytes_ == 0 && !arrived.empty();
  if (first && arrived.front() != first_byte && arrived.front() != alert) {
    return fail(Trouble::not_tls, "it answers in the clear");
  }
  const BytesView begin =
      arrived.first(std::min(arrived.size(), handshake_bytes_max - handshake_bytes_));
  handshake_bytes_ += begin.size();
  arrived = arrived.subspan(begin.size());
  ssl_ ? take(begin) : take_hello(begin);
  if (ssl_ && trouble_ == Trouble::none) handshake();
  if (trouble_ == Trouble::none && !established_ && !arrived.empty()) {
    fail(Trouble::oversized,
         "a handshake of more than " + std::to_string(handshake_bytes_max) + " bytes");
  }
}

// ---- The channel ----

/// False when the other side has closed its end.
bool Channel::read(Bytes& plain) {
  for (;;) {
    const std::size_t before = plain.size();
    plain.resize(before + record_bytes);
    ::ERR_clear_error();
    const int got = ::SSL_read(ssl_.get(), plain.data() + before, record_bytes);
    plain.resize(before + static_cast<std::size_t>(std::max(got, 0)));
    if (got > 0) continue;
    switch (::SSL_get_error(ssl_.get(), got)) {
      case SSL_ERROR_WANT_READ:
        return true;
      case SSL_ERROR_ZERO_RETURN:
        return false;
      default:
        fail_by_openssl();
        return true;
    }
  }
}

void Channel::drain(Bytes& to) const {
  const std::size_t waiting = ::BIO_ctrl_pending(out_);
  if (waiting == 0) return;
  const std::size_t before = to.size();
  to.resize(before + waiting);
  const int got = ::BIO_read(out_, to.data() + before, static_cast<int>(waiting));
  to.resize(before + static_cast<std::size_t>(std::max(got, 0)));
}

TlsChannel::Fed Channel::feed(BytesView arrived, Bytes& plain, Bytes& out) noexcept {
  const std::lock_guard lock(mutex_);
  if (trouble_ != Trouble::none) return Fed::broken;
  bool open = true;
  try {
    if (!established_) take_handshake(arrived);
    if (trouble_ == Trouble::none && established_) {
      take(arrived);
      open = read(plain);
    }
    // Its alert could say that the key is wrong.
    if (ssl_ && trouble_ != Trouble::no_memory) drain(out);
  } catch (...) {
    run_out_of_memory();
  }
  if (trouble_ != Trouble::none) return Fed::broken;
  return open ? Fed::open : Fed::ended;
}

bool Channel::seal(BytesView plain, Bytes& out) noexcept try {
  const std::lock_guard lock(mutex_);
  if (!established_ || trouble_ != Trouble::none) return false;
  ::ERR_clear_error();
  while (!plain.empty()) {
    const auto part = plain.first(std::min(plain.size(), record_bytes));
    if (::SSL_write(ssl_.get(), part.data(), static_cast<int>(part.size())) !=
        static_cast<int>(part.size())) {
      fail_by_openssl();
      return false;
    }
    plain = plain.subspan(part.size());
  }
  drain(out);
  return true;
} catch (...) {
  const std::lock_guard lock(mutex_);
  run_out_of_memory();
  return false;
}

class Acceptor final : public TlsAcceptor {
 public:
  Acceptor(Settings settings, Crypto::FindKey find)
      : settings_(std::move(settings)), find_(std::move(find)) {
    // A client has no certificate to be asked for.
    ::SSL_CTX_set_verify(settings_.get(), SSL_VERIFY_NONE, nullptr);
  }
  std::unique_ptr<TlsChannel> accept() const noexcept override {
    return std::unique_ptr<TlsChannel>(new (std::nothrow) Channel(settings_.get(), find_));
  }

 private:
  const Settings settings_;
  const Crypto::FindKey find_;
};

}  // namespace

std::unique_ptr<TlsChannel> connect(std::string_view job, KeyView key, std::string& why) {
  // One for all connections of the process: making it costs more than a handshake, and the key is
  // each connection's own. Never freed, since a thread may still connect while the process ends.
  static SSL_CTX* const settings = make_settings().release();
  if (settings == nullptr) {
    why = unprepared();
    return nullptr;
  }
  auto channel = std::make_unique<Channel>(settings, job, key);
  why = channel->reason();
  if (!why.empty()) return nullptr;
  return channel;
}

std::unique_ptr<TlsAcceptor> make_acceptor(Crypto::FindKey find, std::string& why) {
  Settings settings = make_settings();
  if (settings) return std::make_unique<Acceptor>(std::move(settings), std::move(find));
  why = unprepared();
  return nullptr;
}

}  // namespace dlaunch::openssl
