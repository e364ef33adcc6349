#include "runtime/store/tls/tls.hpp"

#include "runtime/store/tls/openssl_tls.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace dlaunch::openssl {

const Tls& tls() {
  static const Tls loaded;
  return loaded;
}

}  // namespace dlaunch::openssl

namespace dlaunch::store {
namespace {

using openssl::crypto;
using openssl::tls;

/// The empty job ("whatever lives here") needs a name, too, and other uses of a PSK another one.
constexpr std::string_view identity_prefix = "dlaunch1:";
constexpr std::size_t identity_bytes_max = 1024;
/// These suites go with a SHA-256 key; the first is every implementation's duty.
constexpr const char* suites = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr std::array<unsigned char, 2> session_suite{0x13, 0x01};  // TLS_AES_128_GCM_SHA256
constexpr std::size_t record_bytes = 16u << 10;

struct Free {
  void operator()(SSL_CTX* settings) const { tls().SSL_CTX_free(settings); }
  void operator()(SSL* connection) const { tls().SSL_free(connection); }
  void operator()(SSL_SESSION* session) const { tls().SSL_SESSION_free(session); }
};
using Settings = std::unique_ptr<SSL_CTX, Free>;

[[noreturn]] void cannot_prepare() {
  throw Error(Errc::internal, "cannot prepare TLS: " + openssl::complaint());
}

/// Both ends insist on these settings. The system's openssl.cnf may have said otherwise.
Settings make_settings() {
  const openssl::Tls& t = tls();
  crypto().ERR_clear_error();
  Settings settings(t.SSL_CTX_new(t.TLS_method()));
  SSL_CTX* s = settings.get();
  if (s == nullptr ||
      t.SSL_CTX_ctrl(s, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, nullptr) != 1 ||
      t.SSL_CTX_ctrl(s, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, nullptr) != 1 ||
      t.SSL_CTX_set_ciphersuites(s, suites) != 1 || t.SSL_CTX_set_num_tickets(s, 0) != 1) {
    cannot_prepare();
  }
  t.SSL_CTX_clear_options(s, SSL_OP_ALLOW_NO_DHE_KEX);
  t.SSL_CTX_set_options(s, SSL_OP_NO_TICKET);
  t.SSL_CTX_ctrl(s, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  // Ten thousand idle connections shall not keep two buffers each.
  t.SSL_CTX_ctrl(s, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS, nullptr);
  // Nobody is trusted for a certificate, so a server that does not know the key gets nowhere.
  t.SSL_CTX_set_verify(s, SSL_VERIFY_PEER, nullptr);
  return settings;
}

/// The key as OpenSSL wants an external PSK.
SSL_SESSION* session_of(SSL* connection, const Key& key) {
  const openssl::Tls& t = tls();
  std::unique_ptr<SSL_SESSION, Free> session(t.SSL_SESSION_new());
  const SSL_CIPHER* suite = t.SSL_CIPHER_find(connection, session_suite.data());
  const auto* bytes = reinterpret_cast<const unsigned char*>(key.bytes().data());
  if (!session || suite == nullptr ||
      t.SSL_SESSION_set1_master_key(session.get(), bytes, Key::size) != 1 ||
      t.SSL_SESSION_set_cipher(session.get(), suite) != 1 ||
      t.SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1) {
    return nullptr;
  }
  return session.release();
}

}  // namespace

struct TlsChannel::State {
  State(SSL_CTX* shared, bool is_client) : client(is_client), settings(shared) {
    if (client) open();
  }
  void open() {
    ssl.reset(tls().SSL_new(settings));
    in = crypto().BIO_new(crypto().BIO_s_mem());
    out = crypto().BIO_new(crypto().BIO_s_mem());
    if (!ssl || in == nullptr || out == nullptr) cannot_prepare();
    tls().SSL_set_bio(ssl.get(), in, out);
    tls().SSL_set_ex_data(ssl.get(), 0, this);
    if (client) {
      tls().SSL_set_psk_use_session_callback(ssl.get(), &State::offer);
      tls().SSL_set_connect_state(ssl.get());
    } else {
      tls().SSL_set_psk_find_session_callback(ssl.get(), &State::find);
      tls().SSL_set_accept_state(ssl.get());
    }
  }

  static State& of(SSL* connection) {
    return *static_cast<State*>(tls().SSL_get_ex_data(connection, 0));
  }
  static int offer(SSL* connection, const EVP_MD* digest, const unsigned char** name,
                   std::size_t* bytes, SSL_SESSION** session);
  static int find(SSL* connection, const unsigned char* name, std::size_t bytes,
                  SSL_SESSION** session);

  void take(BytesView bytes);
  void take_hello(BytesView bytes);
  void handshake();
  bool read(Bytes& plain);
  void drain(Bytes& to) const;
  void fail(Trouble what, std::string why);

  const bool client;
  SSL_CTX* const settings;
  std::optional<Key> key;
  const KeyOfJob* key_of = nullptr;
  std::string identity, wire_identity;
  std::unique_ptr<SSL, Free> ssl;
  BIO* in = nullptr;  ///< Owned by ssl, both.
  BIO* out = nullptr;
  Bytes hello;  ///< The server's, until there is all of it.
  std::size_t handshake_bytes = 0;
  bool established = false;
  Trouble trouble = Trouble::none;
  std::string reason;
};

// ---- The key ----

int TlsChannel::State::offer(SSL* connection, const EVP_MD*, const unsigned char** name,
                             std::size_t* bytes, SSL_SESSION** session) {
  const State& self = of(connection);
  *session = session_of(connection, *self.key);
  *name = reinterpret_cast<const unsigned char*>(self.wire_identity.data());
  *bytes = self.wire_identity.size();
  return *session != nullptr ? 1 : 0;
}

/// Called from C, where nothing may be thrown.
int TlsChannel::State::find(SSL* connection, const unsigned char* name, std::size_t bytes,
                            SSL_SESSION** session) {
  State& self = of(connection);
  *session = nullptr;
  const std::string_view wanted(reinterpret_cast<const char*>(name), bytes);
  // No key goes by such a name, and OpenSSL ends the handshake for want of one.
  if (bytes > identity_bytes_max || !wanted.starts_with(identity_prefix)) return 1;
  try {
    self.identity = wanted.substr(identity_prefix.size());
    *session = session_of(connection, (*self.key_of)(self.identity));
  } catch (const std::exception& error) {
    self.reason = error.what();
  }
  return *session != nullptr ? 1 : 0;
}

// ---- The handshake ----

void TlsChannel::State::take(BytesView bytes) {
  if (bytes.empty()) return;
  if (crypto().BIO_write(in, bytes.data(), static_cast<int>(bytes.size())) <= 0) {
    fail(Trouble::garbled, "out of memory");
  }
}

/// OpenSSL's state is a hundred times what a stranger has sent for it, so it is made when the whole
/// client hello is there: without the key that is the last it hears. Ours is one record.
void TlsChannel::State::take_hello(BytesView bytes) {
  constexpr std::size_t record_header = 5, message_header = 4;
  hello.insert(hello.end(), bytes.begin(), bytes.end());
  if (hello.size() < record_header + message_header) return;
  const auto at = [&](std::size_t i) { return std::to_integer<std::size_t>(hello[i]); };
  const std::size_t record = record_header + (at(3) << 8 | at(4));
  const std::size_t message = record_header + message_header + (at(6) << 16 | at(7) << 8 | at(8));
  if (record > handshake_bytes_max) return fail(Trouble::oversized, "a client hello too long");
  if (message > record) return fail(Trouble::garbled, "a client hello in several records");
  if (hello.size() < record) return;
  open();
  take(hello);
  Bytes().swap(hello);
}

void TlsChannel::State::fail(Trouble what, std::string why) {
  trouble = what;
  if (reason.empty()) reason = std::move(why);
}

void TlsChannel::State::handshake() {
  crypto().ERR_clear_error();
  const int result = tls().SSL_do_handshake(ssl.get());
  if (result == 1) {
    // Without certificates there is no other way; but everything rests on it.
    established = tls().SSL_session_reused(ssl.get()) == 1;
    if (!established) fail(Trouble::unproven, "the handshake went without the key");
    return;
  }
  if (tls().SSL_get_error(ssl.get(), result) == SSL_ERROR_WANT_READ) return;
  const int why = ERR_GET_REASON(crypto().ERR_peek_error());
  // A wrong key shows at either end as a binder or a record that does not verify, an alert about
  // it, or a server that tries a certificate instead.
  const bool alert = why > SSL_AD_REASON_OFFSET;
  const bool wrong_key = why == SSL_R_BINDER_DOES_NOT_VERIFY || why == SSL_R_BAD_PSK ||
                         why == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM ||
                         why == SSL_R_CERTIFICATE_VERIFY_FAILED ||
                         why == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC;
  fail(alert || wrong_key ? Trouble::unproven : Trouble::garbled, openssl::complaint());
}

/// False when the other side has closed its end.
bool TlsChannel::State::read(Bytes& plain) {
  for (;;) {
    const std::size_t before = plain.size();
    plain.resize(before + record_bytes);
    crypto().ERR_clear_error();
    const int got = tls().SSL_read(ssl.get(), plain.data() + before, record_bytes);
    plain.resize(before + static_cast<std::size_t>(std::max(got, 0)));
    if (got > 0) continue;
    switch (tls().SSL_get_error(ssl.get(), got)) {
      case SSL_ERROR_WANT_READ:
        return true;
      case SSL_ERROR_ZERO_RETURN:
        return false;
      default:
        fail(Trouble::garbled, openssl::complaint());
        return true;
    }
  }
}

void TlsChannel::State::drain(Bytes& to) const {
  const std::size_t waiting = crypto().BIO_ctrl_pending(out);
  if (waiting == 0) return;
  const std::size_t before = to.size();
  to.resize(before + waiting);
  const int got = crypto().BIO_read(out, to.data() + before, static_cast<int>(waiting));
  to.resize(before + static_cast<std::size_t>(std::max(got, 0)));
}

// ---- The channel ----

TlsChannel::TlsChannel(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsChannel::~TlsChannel() = default;

std::unique_ptr<TlsChannel> TlsChannel::connect(std::string job, const Key& key) {
  // One for all connections of the process: making it costs more than a handshake, and the key is
  // each connection's own. Never freed, since a thread may still connect while the process ends.
  static SSL_CTX* const settings = make_settings().release();
  auto state = std::make_unique<State>(settings, true);
  state->key = key;
  state->wire_identity = std::string(identity_prefix) + job;
  if (state->wire_identity.size() > identity_bytes_max) {
    throw Error(Errc::misuse, "a job id of " + std::to_string(job.size()) + " bytes is too long");
  }
  state->identity = std::move(job);
  return std::unique_ptr<TlsChannel>(new TlsChannel(std::move(state)));
}

TlsChannel::Fed TlsChannel::feed(BytesView arrived, Bytes& plain, Bytes& out) {
  const std::lock_guard lock(mutex_);
  State& s = *state_;
  if (s.trouble != Trouble::none) return Fed::broken;
  if (!s.established) {
    constexpr std::byte alert{0x15};
    const bool first = s.client && s.handshake_bytes == 0 && !arrived.empty();
    if (first && arrived.front() != first_byte && arrived.front() != alert) {
      s.fail(Trouble::not_tls, "it answers in the clear");
      return Fed::broken;
    }
    const BytesView begin =
        arrived.first(std::min(arrived.size(), handshake_bytes_max - s.handshake_bytes));
    s.handshake_bytes += begin.size();
    arrived = arrived.subspan(begin.size());
    s.ssl ? s.take(begin) : s.take_hello(begin);
    if (s.ssl && s.trouble == Trouble::none) s.handshake();
    if (s.trouble == Trouble::none && !s.established && !arrived.empty()) {
      s.fail(Trouble::oversized,
             "a handshake of more than " + std::to_string(handshake_bytes_max) + " bytes");
    }
  }
  bool open = true;
  if (s.trouble == Trouble::none && s.established) {
    s.take(arrived);
    open = s.read(plain);
  }
  if (s.ssl) s.drain(out);
  if (s.trouble != Trouble::none) return Fed::broken;
  return open ? Fed::open : Fed::ended;
}

bool TlsChannel::seal(BytesView plain, Bytes& out) {
  const std::lock_guard lock(mutex_);
  State& s = *state_;
  if (!s.established || s.trouble != Trouble::none) return false;
  crypto().ERR_clear_error();
  while (!plain.empty()) {
    const auto part = plain.first(std::min(plain.size(), record_bytes));
    if (tls().SSL_write(s.ssl.get(), part.data(), static_cast<int>(part.size())) !=
        static_cast<int>(part.size())) {
      s.fail(Trouble::garbled, openssl::complaint());
      return false;
    }
    plain = plain.subspan(part.size());
  }
  s.drain(out);
  return true;
}

bool TlsChannel::established() const {
  const std::lock_guard lock(mutex_);
  return state_->established;
}

const std::string& TlsChannel::identity() const { return state_->identity; }

TlsChannel::Trouble TlsChannel::trouble() const {
  const std::lock_guard lock(mutex_);
  return state_->trouble;
}

std::string TlsChannel::reason() const {
  const std::lock_guard lock(mutex_);
  return state_->reason;
}

Error TlsChannel::error(const std::string& what) const {
  const std::lock_guard lock(mutex_);
  switch (state_->trouble) {
    case Trouble::not_tls:
      return Error(Errc::unauthenticated,
                   what +
                       ": it does not speak TLS, so it cannot prove the job's "
                       "secret; was it started with one, and is the port right?");
    case Trouble::unproven:
      return Error(Errc::unauthenticated, what + ": wrong secret, or no such job there");
    case Trouble::none:
    case Trouble::oversized:
    case Trouble::garbled:
      break;
  }
  return Error(Errc::peer_lost, what +
                                    ": what came over TLS was no answer, or was changed on the "
                                    "way (" +
                                    state_->reason + ")");
}

// ---- The server's end of many ----

struct TlsAcceptor::State {
  KeyOfJob key_of;
  Settings settings = make_settings();
};

TlsAcceptor::TlsAcceptor(KeyOfJob key_of)
    : state_(std::make_unique<State>(State{std::move(key_of)})) {
  // A client has no certificate to be asked for.
  tls().SSL_CTX_set_verify(state_->settings.get(), SSL_VERIFY_NONE, nullptr);
}
TlsAcceptor::~TlsAcceptor() = default;

std::unique_ptr<TlsChannel> TlsAcceptor::accept() const {
  auto state = std::make_unique<TlsChannel::State>(state_->settings.get(), false);
  state->key_of = &state_->key_of;
  return std::unique_ptr<TlsChannel>(new TlsChannel(std::move(state)));
}

}  // namespace dlaunch::store
