#pragma once

#include "runtime/base/secret/secret.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

/// The two ends of a TlsChannel.
namespace dlaunch::store {

/// The client's end. Throws Error where it cannot be made.
std::unique_ptr<TlsChannel> connect_tls(const std::string& job, const Key& key);

/// The key of a job, for any name: of an unknown job as well, so that a wrong secret and an unknown
/// job cannot be told apart.
using KeyOfJob = std::function<Key(std::string_view job)>;
/// The server's end of many. Throws Error where it cannot be made.
std::unique_ptr<TlsAcceptor> accept_tls(KeyOfJob key_of);

/// After `broken`: what to throw, `what` being what was tried; Errc::unauthenticated where trying
/// again is of no use.
Error error_of(const TlsChannel& channel, const std::string& what);

}  // namespace dlaunch::store
