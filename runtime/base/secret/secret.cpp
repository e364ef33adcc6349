#include "runtime/base/secret/secret.hpp"

#include "runtime/base/secret/openssl.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include <openssl/core_names.h>

namespace dlaunch {
namespace {

constexpr std::string_view job_key_prefix = "dlk1:";
constexpr std::size_t text_key_bytes_min = 16;  ///< 128 bits.
constexpr std::size_t raw_key_bytes_min = 32;

constexpr const char* how_to_make_one = "; 'openssl rand -hex 32 > FILE; chmod 600 FILE' makes one";

const unsigned char* unsigned_data(BytesView bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

/// Bytes of a secret on its way: every way out wipes them.
struct WipedBytes {
  Bytes bytes;
  ~WipedBytes() { wipe(bytes); }
};

bool is_hex(std::string_view text) {
  return text.size() % 2 == 0 && !text.empty() &&
         text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

bool is_base64(std::string_view text) {
  constexpr std::string_view alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0) return false;
  const auto end = text.find_first_not_of(alphabet);
  return end == std::string_view::npos || text.substr(end) == "=" || text.substr(end) == "==";
}

bool is_text(std::string_view content) {
  return std::all_of(content.begin(), content.end(), [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return code >= 0x80 || (code >= 0x20 && code != 0x7f) || c == '\n' || c == '\r' || c == '\t';
  });
}

unsigned nibble(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  return static_cast<unsigned>((c | 0x20) - 'a') + 10;
}

Bytes from_hex(std::string_view text) {
  Bytes out;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    out.push_back(static_cast<std::byte>(nibble(text[i]) << 4 | nibble(text[i + 1])));
  }
  return out;
}

Bytes from_base64(std::string_view text) {
  Bytes out(text.size() / 4 * 3);
  const int size = openssl::crypto().EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                                     unsigned_data(as_bytes(text)),
                                                     static_cast<int>(text.size()));
  const auto padding = static_cast<std::size_t>(std::count(text.begin(), text.end(), '='));
  // It counts the padding as zeros.
  out.resize(static_cast<std::size_t>(std::max(size, 0)) - padding);
  return out;
}

std::string_view trimmed(std::string_view text) {
  const auto last = text.find_last_not_of(" \t\r\n");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

[[noreturn]] void unusable(const std::string& where, const std::string& why) {
  throw Error(Errc::misuse, "the secret in " + where + " cannot be used: " + why);
}

/// The bytes of a master key, however it is written.
Bytes master_bytes(BytesView content, const std::string& where) {
  const std::string_view text = trimmed(as_text(content));
  const bool hex = is_hex(text);
  if (hex || is_base64(text)) {
    Bytes bytes = hex ? from_hex(text) : from_base64(text);
    if (bytes.size() >= text_key_bytes_min) return bytes;
    const std::size_t bits = bytes.size() * 8;
    wipe(bytes);
    unusable(where, "it has " + std::to_string(bits) + " bits, and " +
                        std::to_string(text_key_bytes_min * 8) + " is the least" + how_to_make_one);
  }
  if (text.empty()) unusable(where, std::string("it is empty") + how_to_make_one);
  if (is_text(text)) {
    unusable(where, std::string("it is neither hexadecimal nor base64, and what one can remember, "
                                "others can guess") +
                        how_to_make_one);
  }
  if (content.size() < raw_key_bytes_min) {
    unusable(where, "it has " + std::to_string(content.size()) + " bytes, and " +
                        std::to_string(raw_key_bytes_min) + " is the least" + how_to_make_one);
  }
  return Bytes(content.begin(), content.end());
}

}  // namespace

void wipe(std::span<std::byte> secret) noexcept {
  // The C library's: OpenSSL's does the same, and may not be loaded.
  if (!secret.empty()) ::explicit_bzero(secret.data(), secret.size());
}

void wipe(std::string& secret) noexcept { ::explicit_bzero(secret.data(), secret.size()); }

Key::Key(View bytes) { std::copy(bytes.begin(), bytes.end(), bytes_.begin()); }

Key derive_key(BytesView from, std::string_view info) {
  const openssl::Crypto& c = openssl::crypto();
  const std::unique_ptr<EVP_KDF, decltype(c.EVP_KDF_free)> kdf(
      c.EVP_KDF_fetch(nullptr, "HKDF", nullptr), c.EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, decltype(c.EVP_KDF_CTX_free)> derivation(
      kdf ? c.EVP_KDF_CTX_new(kdf.get()) : nullptr, c.EVP_KDF_CTX_free);
  std::string digest = "SHA256";
  // OpenSSL's parameters have no const; it only reads these.
  const std::array<OSSL_PARAM, 4> parameters{
      c.OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      c.OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<std::byte*>(from.data()),
                                          from.size()),
      c.OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<char*>(info.data()),
                                          info.size()),
      c.OSSL_PARAM_construct_end()};
  std::array<std::byte, Key::size> out{};
  if (!derivation ||
      c.EVP_KDF_derive(derivation.get(), reinterpret_cast<unsigned char*>(out.data()), out.size(),
                       parameters.data()) != 1) {
    throw Error(Errc::internal, "cannot derive a key: " + openssl::complaint());
  }
  Key key(out);
  wipe(out);
  return key;
}

Key derive_data_key(const Key& job_key, std::uint64_t incarnation, std::uint64_t epoch) {
  return derive_key(job_key.bytes(),
                    "dlaunch 1 data:" + std::to_string(incarnation) + ":" + std::to_string(epoch));
}

Mac mac_of(const Key& key, BytesView message) {
  const openssl::Crypto& c = openssl::crypto();
  Mac mac{};
  unsigned size = 0;
  if (c.HMAC(c.EVP_sha256(), key.bytes().data(), Key::size, unsigned_data(message), message.size(),
             reinterpret_cast<unsigned char*>(mac.data()), &size) == nullptr) {
    throw Error(Errc::internal, "cannot make an HMAC: " + openssl::complaint());
  }
  return mac;
}

bool same_mac(const Mac& one, const Mac& other) {
  return openssl::crypto().CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

Secret Secret::parse(BytesView content, const std::string& where) {
  const std::string_view text = trimmed(as_text(content));
  if (!text.starts_with(job_key_prefix)) {
    const WipedBytes master{master_bytes(content, where)};
    const bool constant = std::adjacent_find(master.bytes.begin(), master.bytes.end(),
                                             std::not_equal_to<>()) == master.bytes.end();
    if (constant) unusable(where, std::string("all its bytes are the same") + how_to_make_one);
    return {derive_key(master.bytes, "dlaunch 1 master"), std::nullopt};
  }
  const std::string_view rest = text.substr(job_key_prefix.size());
  const auto colon = rest.rfind(':');
  const std::string_view encoded =
      colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  if (!is_base64(encoded)) unusable(where, "it begins as a job's key, dlk1:JOB:KEY, but is none");
  const WipedBytes bytes{from_base64(encoded)};
  if (bytes.bytes.size() != Key::size) {
    unusable(where, "it begins as a job's key, but has not the " + std::to_string(Key::size) +
                        " bytes of one; was it cut?");
  }
  return {Key(Key::View(bytes.bytes)), std::string(rest.substr(0, colon))};
}

Key Secret::job_key(std::string_view job) const {
  if (!only_job_) return derive_key(key_.bytes(), "dlaunch 1 job:" + std::string(job));
  if (*only_job_ == job) return key_;
  throw Error(Errc::misuse, "this secret is the key of the job '" + *only_job_ +
                                "' alone, not of '" + std::string(job) + "'");
}

std::string job_key_text(std::string_view job, const Key& key) {
  std::array<unsigned char, Key::size / 3 * 4 + 5> encoded{};
  const int size = openssl::crypto().EVP_EncodeBlock(encoded.data(), unsigned_data(key.bytes()),
                                                     static_cast<int>(Key::size));
  std::string text(job_key_prefix);
  text.append(job).append(":");
  text.append(encoded.begin(), encoded.begin() + size);
  wipe(std::as_writable_bytes(std::span(encoded)));
  return text;
}

}  // namespace dlaunch
