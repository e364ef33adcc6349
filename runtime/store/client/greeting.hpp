#pragma once

#include "runtime/store/client/client.hpp"
#include "runtime/store/protocol/frame_reader.hpp"
#include "runtime/store/tls/tls.hpp"

#include <memory>

/// The words of a client and its server to each other before all else, over an open connection.
/// Errors name who joins what, and tell another program's port from a server that refuses.
namespace dlaunch::store {

/// If there is a key, nothing is said before the other side has proved to know it; the reader reads
/// through the returned channel. Null if there is no key.
std::unique_ptr<TlsChannel> secure(int socket, FrameReader& reader, const Client::Options& options,
                                   Clock::time_point deadline);
/// Preface and HELLO there, preface and WELCOME back; `tls` may be null.
wire::Welcome greet(int socket, FrameReader& reader, TlsChannel* tls,
                    const Client::Options& options, Clock::time_point deadline);

}  // namespace dlaunch::store
