#pragma once

#include "runtime/base/secret/crypto.hpp"

namespace dlaunch::openssl {

/// What this thread's OpenSSL calls complained about first since ERR_clear_error.
std::string complaint();

/// The two ends of Crypto; null, and why.
std::unique_ptr<TlsChannel> connect(std::string_view job, KeyView key, std::string& why);
std::unique_ptr<TlsAcceptor> make_acceptor(Crypto::FindKey find, std::string& why);

}  // namespace dlaunch::openssl
