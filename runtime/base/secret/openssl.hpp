#pragma once

#include <string>

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

/// OpenSSL 3, loaded when the first key is used. Linked in the ordinary way, its relocations would
/// cost every launcher and every worker about a millisecond at each start, and most never see a
/// key. The members have OpenSSL's own names; what they do stands in its manual pages.
namespace dlaunch::openssl {

/// A function on its way to a pointer of its type.
class Symbol {
 public:
  explicit Symbol(void* address) : address_(address) {}
  template <class Function>
  operator Function*() const {
    return reinterpret_cast<Function*>(address_);
  }

 private:
  void* address_;
};

/// A library that stays loaded to the end: OpenSSL cannot be unloaded. Throws Error{unsupported}
/// when it is missing, or lacks a function.
class Library {
 public:
  /// "crypto" becomes libcrypto.so.3, with the number of the version we were compiled for.
  explicit Library(const std::string& name);
  Symbol operator[](const char* function) const;

 private:
  std::string file_;
  void* handle_;
};

struct Crypto {
  Library crypto{"crypto"};
  decltype(&::BIO_ctrl_pending) BIO_ctrl_pending = crypto["BIO_ctrl_pending"];
  decltype(&::BIO_new) BIO_new = crypto["BIO_new"];
  decltype(&::BIO_read) BIO_read = crypto["BIO_read"];
  decltype(&::BIO_s_mem) BIO_s_mem = crypto["BIO_s_mem"];
  decltype(&::BIO_write) BIO_write = crypto["BIO_write"];
  decltype(&::CRYPTO_memcmp) CRYPTO_memcmp = crypto["CRYPTO_memcmp"];
  decltype(&::ERR_clear_error) ERR_clear_error = crypto["ERR_clear_error"];
  decltype(&::ERR_error_string_n) ERR_error_string_n = crypto["ERR_error_string_n"];
  decltype(&::ERR_peek_error) ERR_peek_error = crypto["ERR_peek_error"];
  decltype(&::EVP_DecodeBlock) EVP_DecodeBlock = crypto["EVP_DecodeBlock"];
  decltype(&::EVP_EncodeBlock) EVP_EncodeBlock = crypto["EVP_EncodeBlock"];
  decltype(&::EVP_KDF_CTX_free) EVP_KDF_CTX_free = crypto["EVP_KDF_CTX_free"];
  decltype(&::EVP_KDF_CTX_new) EVP_KDF_CTX_new = crypto["EVP_KDF_CTX_new"];
  decltype(&::EVP_KDF_derive) EVP_KDF_derive = crypto["EVP_KDF_derive"];
  decltype(&::EVP_KDF_fetch) EVP_KDF_fetch = crypto["EVP_KDF_fetch"];
  decltype(&::EVP_KDF_free) EVP_KDF_free = crypto["EVP_KDF_free"];
  decltype(&::EVP_sha256) EVP_sha256 = crypto["EVP_sha256"];
  decltype(&::HMAC) HMAC = crypto["HMAC"];
  decltype(&::OSSL_PARAM_construct_end) OSSL_PARAM_construct_end =
      crypto["OSSL_PARAM_construct_end"];
  decltype(&::OSSL_PARAM_construct_octet_string) OSSL_PARAM_construct_octet_string =
      crypto["OSSL_PARAM_construct_octet_string"];
  decltype(&::OSSL_PARAM_construct_utf8_string) OSSL_PARAM_construct_utf8_string =
      crypto["OSSL_PARAM_construct_utf8_string"];
};

/// Loads it when called for the first time. Any thread may call.
const Crypto& crypto();
/// The first of what this thread's OpenSSL calls complained about since ERR_clear_error.
std::string complaint();

}  // namespace dlaunch::openssl
