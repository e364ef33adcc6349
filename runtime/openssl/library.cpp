#include "runtime/openssl/channel.hpp"

#include <array>
#include <utility>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

/// libdlaunch_tls.so: what it exports, and the keys. It alone is linked with OpenSSL.
namespace dlaunch::openssl {
namespace {

const unsigned char* unsigned_data(BytesView bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

/// What `act` returns. Nothing leaves this library by an exception: where memory runs out, false or
/// null, and why.
template <class Act>
auto contained(std::string& why, const Act& act) noexcept -> decltype(act()) {
  try {
    return act();
  } catch (...) {
    why = "out of memory";  // So short a text takes none.
    return {};
  }
}

class OpenSsl final : public Crypto {
 public:
  bool derive(BytesView from, std::string_view info, std::span<std::byte, key_bytes> out,
              std::string& why) noexcept override {
    ::ERR_clear_error();
    const std::unique_ptr<EVP_KDF, decltype(&::EVP_KDF_free)> kdf(
        ::EVP_KDF_fetch(nullptr, "HKDF", nullptr), &::EVP_KDF_free);
    const std::unique_ptr<EVP_KDF_CTX, decltype(&::EVP_KDF_CTX_free)> derivation(
        kdf ? ::EVP_KDF_CTX_new(kdf.get()) : nullptr, &::EVP_KDF_CTX_free);
    std::string digest = "SHA256";
    // OpenSSL's parameters have no const; it only reads these.
    const std::array<OSSL_PARAM, 4> parameters{
        ::OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
        ::OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<std::byte*>(from.data()),
                                            from.size()),
        ::OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<char*>(info.data()),
                                            info.size()),
        ::OSSL_PARAM_construct_end()};
    if (derivation &&
        ::EVP_KDF_derive(derivation.get(), reinterpret_cast<unsigned char*>(out.data()), out.size(),
                         parameters.data()) == 1) {
      return true;
    }
    return refused(why);
  }

  bool authenticate(KeyView key, BytesView message, std::span<std::byte, mac_bytes> out,
                    std::string& why) noexcept override {
    ::ERR_clear_error();
    unsigned size = 0;
    if (::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), unsigned_data(message),
               message.size(), reinterpret_cast<unsigned char*>(out.data()), &size) != nullptr) {
      return true;
    }
    return refused(why);
  }

  bool same(MacView one, MacView other) noexcept override {
    return ::CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
  }

  std::unique_ptr<TlsChannel> connect(std::string_view job, KeyView key,
                                      std::string& why) noexcept override {
    return contained(why, [&] { return openssl::connect(job, key, why); });
  }
  std::unique_ptr<TlsAcceptor> make_acceptor(FindKey find, std::string& why) noexcept override {
    return contained(why, [&] { return openssl::make_acceptor(std::move(find), why); });
  }

 private:
  static bool refused(std::string& why) noexcept {
    return contained(why, [&] { return why = complaint(), false; });
  }
};

}  // namespace

std::string complaint() {
  const unsigned long code = ::ERR_peek_error();
  if (code == 0) return "no reason given";
  // Errors of the system have none.
  if (const char* reason = ::ERR_reason_error_string(code)) return reason;
  std::array<char, 256> text{};
  ::ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

}  // namespace dlaunch::openssl

extern "C" __attribute__((visibility("default"))) dlaunch::Crypto* dlaunch_crypto(
    const char* version, std::string* why) {
  static auto* const library = new dlaunch::openssl::OpenSsl;
  if (std::string_view(version) == DLAUNCH_VERSION) return library;
  *why = std::string("libdlaunch_tls.so is of dlaunch " DLAUNCH_VERSION " and its user of ") +
         version + ": install both from one build";
  return nullptr;
}
