#pragma once

#include "runtime/base/secret/openssl.hpp"

#include <openssl/ssl.h>

namespace dlaunch::openssl {

/// libssl, which base has no use for; see runtime/base/secret/openssl.hpp.
struct Tls {
  Library ssl{"ssl"};
  decltype(&::SSL_CIPHER_find) SSL_CIPHER_find = ssl["SSL_CIPHER_find"];
  decltype(&::SSL_CTX_clear_options) SSL_CTX_clear_options = ssl["SSL_CTX_clear_options"];
  decltype(&::SSL_CTX_ctrl) SSL_CTX_ctrl = ssl["SSL_CTX_ctrl"];
  decltype(&::SSL_CTX_free) SSL_CTX_free = ssl["SSL_CTX_free"];
  decltype(&::SSL_CTX_new) SSL_CTX_new = ssl["SSL_CTX_new"];
  decltype(&::SSL_CTX_set_ciphersuites) SSL_CTX_set_ciphersuites = ssl["SSL_CTX_set_ciphersuites"];
  decltype(&::SSL_CTX_set_num_tickets) SSL_CTX_set_num_tickets = ssl["SSL_CTX_set_num_tickets"];
  decltype(&::SSL_CTX_set_options) SSL_CTX_set_options = ssl["SSL_CTX_set_options"];
  decltype(&::SSL_CTX_set_verify) SSL_CTX_set_verify = ssl["SSL_CTX_set_verify"];
  decltype(&::SSL_SESSION_free) SSL_SESSION_free = ssl["SSL_SESSION_free"];
  decltype(&::SSL_SESSION_new) SSL_SESSION_new = ssl["SSL_SESSION_new"];
  decltype(&::SSL_SESSION_set1_master_key) SSL_SESSION_set1_master_key =
      ssl["SSL_SESSION_set1_master_key"];
  decltype(&::SSL_SESSION_set_cipher) SSL_SESSION_set_cipher = ssl["SSL_SESSION_set_cipher"];
  decltype(&::SSL_SESSION_set_protocol_version) SSL_SESSION_set_protocol_version =
      ssl["SSL_SESSION_set_protocol_version"];
  decltype(&::SSL_do_handshake) SSL_do_handshake = ssl["SSL_do_handshake"];
  decltype(&::SSL_free) SSL_free = ssl["SSL_free"];
  decltype(&::SSL_get_error) SSL_get_error = ssl["SSL_get_error"];
  decltype(&::SSL_get_ex_data) SSL_get_ex_data = ssl["SSL_get_ex_data"];
  decltype(&::SSL_new) SSL_new = ssl["SSL_new"];
  decltype(&::SSL_read) SSL_read = ssl["SSL_read"];
  decltype(&::SSL_session_reused) SSL_session_reused = ssl["SSL_session_reused"];
  decltype(&::SSL_set_accept_state) SSL_set_accept_state = ssl["SSL_set_accept_state"];
  decltype(&::SSL_set_bio) SSL_set_bio = ssl["SSL_set_bio"];
  decltype(&::SSL_set_connect_state) SSL_set_connect_state = ssl["SSL_set_connect_state"];
  decltype(&::SSL_set_ex_data) SSL_set_ex_data = ssl["SSL_set_ex_data"];
  decltype(&::SSL_set_psk_find_session_callback) SSL_set_psk_find_session_callback =
      ssl["SSL_set_psk_find_session_callback"];
  decltype(&::SSL_set_psk_use_session_callback) SSL_set_psk_use_session_callback =
      ssl["SSL_set_psk_use_session_callback"];
  decltype(&::SSL_write) SSL_write = ssl["SSL_write"];
  decltype(&::TLS_method) TLS_method = ssl["TLS_method"];
};

/// Loads it when called for the first time. Any thread may call.
const Tls& tls();

}  // namespace dlaunch::openssl
