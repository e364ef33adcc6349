#pragma once

#include "runtime/store/client.hpp"
#include "runtime/store/frame_reader.hpp"
#include "runtime/store/tls.hpp"

#include <memory>

/// What a client and its server say to each other before all else, over a connection that is open.
/// Errors name who joins what, and tell another program's port from a server that refuses.
namespace dlaunch::store {

/// Where there is a key, nothing is said before the other side has proved to know it; the reader
/// reads through what this returns. Null where there is none.
std::unique_ptr<TlsChannel> secure(int socket, FrameReader& reader, const Client::Options& options,
                                   Clock::time_point deadline);
/// Preface and HELLO there, preface and WELCOME back; `tls` may be null.
wire::Welcome greet(int socket, FrameReader& reader, TlsChannel* tls,
                    const Client::Options& options, Clock::time_point deadline);

}  // namespace dlaunch::store
