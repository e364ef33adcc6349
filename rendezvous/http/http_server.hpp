#pragma once

#include "rendezvous/http/page.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

namespace dlaunch::rendezvous {

/// Serves pages over HTTP/1.1: GET, HEAD, POST and DELETE, no request bodies. One thread: that of
/// `io`. A request has 8 KiB and 5 s, its answer included. 64 connections are served at once; the
/// next takes the place of the one that is idle for longest, as it does where no descriptor is
/// left. 16 of them may follow a feed, and each piece of it has 5 s to be taken. A client that
/// exceeds a limit is cut off, and nobody else suffers.
class HttpServer {
 public:
  /// Gives the page that a request asks for.
  using Pages = std::function<Page(const PageRequest& request)>;
  /// Hears a sentence about a problem of the server itself.
  using Trouble = std::function<void(const std::string& sentence)>;

  /// `listener`: a bound and listening TCP socket; throws Error for any other.
  HttpServer(boost::asio::io_context& io, unique_fd listener, Pages pages, Trouble trouble);
  ~HttpServer();

  /// Runs `io` until it is stopped or has nothing to do. A failure meanwhile, for want of memory
  /// say, ends the connection that it was for; the others are served, and new ones accepted.
  void run();
  std::size_t connections() const;
  /// The connections that follow a feed.
  std::size_t followers() const;
  /// Feeds that had nothing may have something now.
  void news();
  /// Closes the listener and every connection.
  void stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dlaunch::rendezvous
