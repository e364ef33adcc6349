#include "rendezvous/http/http_server.hpp"

#include "rendezvous/http/request.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <dlaunch/error.hpp>

#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

namespace dlaunch::rendezvous {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

using asio::ip::tcp;
using boost::system::error_code;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t header_bytes_max = 8u << 10;
constexpr auto request_time_max = 5s;
constexpr std::size_t connections_max = 64;
/// The most connections that may follow a feed, so that others are served, too.
constexpr std::size_t followers_max = 16;
/// How often a silent feed says that it is silent, which shows clients that have gone without a
/// word.
constexpr auto silence_max = 15s;
constexpr std::string_view silence = ":\n\n";  // A comment, as an event stream has it.
/// When all are taken and another comes, or no descriptor is left for it, a connection goes that
/// has been silent for so long, or has not taken its whole answer for so long.
constexpr auto idle_time_min = 250ms;
constexpr auto untaken_time_min = 1s;
/// How long, and how much, a refused client may go on sending before its connection is closed: a
/// close with unread bytes would take our answer away from it.
constexpr auto linger_time_max = 1s;
constexpr std::size_t linger_bytes_max = 64u << 10;
/// Without descriptors or memory for another connection, accepting rests.
constexpr auto accept_pause = 100ms;

using Request = http::request_parser<http::empty_body>;
using Response = http::response<http::string_body>;

/// The answer to a request that could not be read; nullopt: nobody is left to answer.
std::optional<Page> objection(const error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return sentence_page(431, "a request may have a header of 8 KiB");
  }
  if (error == http::error::end_of_stream || error == http::error::partial_message) return {};
  if (error.category() != http::make_error_code(http::error::bad_method).category()) return {};
  return sentence_page(400, "this is no HTTP/1.1 request: " + error.message());
}

/// Makes an answer with the header of all: no other site's page may embed it, and no browser may
/// guess another type for it.
template <class Message>
Message answer_to(const Request& request, const Page& page) {
  const unsigned version = request.get().version() == 10 ? 10 : 11;
  Message response(static_cast<http::status>(page.code), version);
  response.set(http::field::content_type, page.content_type);
  response.set(http::field::cache_control, "no-store");
  response.set("Content-Security-Policy", page.policy);
  response.set("Cross-Origin-Resource-Policy", "same-origin");
  response.set("Referrer-Policy", "no-referrer");
  response.set("X-Content-Type-Options", "nosniff");
  return response;
}

/// Counts a follower for as long as it lives.
struct Counted {
  explicit Counted(std::size_t& what) : count(what) { ++count; }
  ~Counted() { --count; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  std::size_t& count;
};

Response to_response(const Request& request, Page page, bool keep) {
  auto response = answer_to<Response>(request, page);
  if (page.code == 405) response.set(http::field::allow, "GET, HEAD");
  if (page.code == 401) response.set(http::field::www_authenticate, "Bearer");
  response.keep_alive(keep);
  response.content_length(page.body.size());
  if (request.get().method() != http::verb::head) response.body() = std::move(page.body);
  return response;
}

}  // namespace

struct HttpServer::State : std::enable_shared_from_this<State> {
  State(asio::io_context& context, Pages give, Trouble tell)
      : io(context),
        work(context.get_executor()),
        pages(std::move(give)),
        trouble(std::move(tell)),
        acceptor(context),
        pause(context) {}

  struct Connection;

  static asio::awaitable<void> accept(std::shared_ptr<State> self);
  static asio::awaitable<void> make_room(std::shared_ptr<State> self);
  static asio::awaitable<void> serve(std::shared_ptr<Connection> connection);
  static asio::awaitable<void> follow(std::shared_ptr<Connection> connection,
                                      const Request& request, const Page& page);
  static asio::awaitable<void> notice_hang_up(std::shared_ptr<Connection> connection);
  static asio::awaitable<void> linger(beast::tcp_stream& stream);
  Page page_for(const Request& request, const std::string& peer) const;

  /// Ends the connection that has kept us waiting for longest, if that is long enough: nullopt.
  /// Else: when it is worth another try.
  std::optional<Clock::time_point> end_slowest();
  /// Begins to accept, unless a coroutine does so already.
  void go_on_accepting();
  /// Logging may fail, too.
  void tell(const char* what, const std::exception& error) const noexcept;
  /// A coroutine's end: an exception is told, and stops nothing else.
  auto ended(const char* what) {
    return [self = shared_from_this(), what](const std::exception_ptr& failure) {
      if (!failure) return;
      try {
        std::rethrow_exception(failure);
      } catch (const std::exception& error) {
        self->tell(what, error);
      }
    };
  }

  asio::io_context& io;
  /// Held until stop(): the loop would end if it ran out of work for a moment, when what it waited
  /// for has failed.
  asio::executor_work_guard<asio::io_context::executor_type> work;
  const Pages pages;
  const Trouble trouble;
  tcp::acceptor acceptor;
  asio::steady_timer pause;  ///< Until a connection may be accepted again.
  std::set<Connection*> connections;
  std::size_t followers = 0;
  std::size_t accepting = 0;  ///< The number of coroutines that accept; at most one.
  bool stopped = false;
};

/// A connection, which is counted from the accept until it is destroyed, however its coroutine
/// ends.
struct HttpServer::State::Connection {
  Connection(std::shared_ptr<State> owner, tcp::socket socket)
      : state(std::move(owner)), stream(std::move(socket)), wake(state->io) {
    error_code unknown;  // It may have gone already.
    const auto from = stream.socket().remote_endpoint(unknown);
    if (!unknown) peer = host_port(from.address().to_string(), from.port());
    state->connections.insert(this);
  }
  ~Connection() {
    state->connections.erase(this);
    state->pause.cancel();
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::shared_ptr<State> state;
  beast::tcp_stream stream;
  std::string peer;
  /// From when on it may be ended for another one's sake, as its client is awaited: with a request,
  /// or to take an answer. Unset while nobody waits for the client.
  std::optional<Clock::time_point> slow_from = Clock::now() + idle_time_min;
  asio::steady_timer wake;  ///< For a follower of a feed: runs until there is news.
  bool hung_up = false;
};

/// Waits for room for another connection: there is some at once, or when the slowest one is gone.
asio::awaitable<void> HttpServer::State::make_room(std::shared_ptr<State> self) {
  error_code error;
  while (!self->stopped && self->connections.size() >= connections_max) {
    // No connection is closed before another one comes.
    co_await self->acceptor.async_wait(tcp::acceptor::wait_read,
                                       asio::redirect_error(asio::use_awaitable, error));
    if (self->stopped || self->connections.size() < connections_max) co_return;
    // Until it is gone, if one goes.
    self->pause.expires_at(self->end_slowest().value_or(Clock::time_point::max()));
    co_await self->pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
  }
}

std::optional<Clock::time_point> HttpServer::State::end_slowest() {
  Connection* slowest = nullptr;
  for (Connection* one : connections) {
    if (!one->slow_from) continue;
    if (slowest == nullptr || *one->slow_from < *slowest->slow_from) slowest = one;
  }
  if (slowest == nullptr) return Clock::now() + request_time_max;
  if (*slowest->slow_from > Clock::now()) return slowest->slow_from;
  slowest->slow_from.reset();
  slowest->stream.cancel();
  return std::nullopt;
}

void HttpServer::State::tell(const char* what, const std::exception& error) const noexcept {
  try {
    trouble(std::string(what) + ": " + error.what());
  } catch (const std::exception&) {  // There is no memory for telling it, either.
  }
}

/// An exception leaves the loop, whose run() begins anew.
void HttpServer::State::go_on_accepting() {
  if (stopped || accepting > 0) return;
  asio::co_spawn(io, accept(shared_from_this()), [](const std::exception_ptr& failure) {
    if (failure) std::rethrow_exception(failure);
  });
}

asio::awaitable<void> HttpServer::State::accept(std::shared_ptr<State> self) {
  const Counted counted(self->accepting);
  while (!self->stopped) {
    error_code error;
    co_await make_room(self);
    if (self->stopped) co_return;
    tcp::socket socket(self->io);
    co_await self->acceptor.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    if (self->stopped) co_return;
    if (!error) {
      auto connection = std::make_shared<Connection>(self, std::move(socket));
      asio::co_spawn(self->io, serve(std::move(connection)), self->ended("a status connection"));
    } else if (error != asio::error::connection_aborted) {
      self->end_slowest();
      self->pause.expires_after(accept_pause);
      co_await self->pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
    }
  }
}

asio::awaitable<void> HttpServer::State::serve(std::shared_ptr<Connection> connection) {
  const State& self = *connection->state;
  beast::tcp_stream& stream = connection->stream;
  beast::flat_buffer buffer(header_bytes_max);
  for (bool keep = true; keep && !self.stopped;) {
    stream.expires_after(request_time_max);
    connection->slow_from = Clock::now() + idle_time_min;
    Request request;
    request.header_limit(header_bytes_max);
    error_code error;
    co_await http::async_read_header(stream, buffer, request,
                                     asio::redirect_error(asio::use_awaitable, error));
    connection->slow_from.reset();
    std::optional<Page> page;
    if (error) {
      page = objection(error);
      if (!page) co_return;
    } else if (!request.is_done()) {
      page = sentence_page(400, "a request has no body here");
    }
    const bool refused = page.has_value();
    keep = !refused && !self.stopped && request.get().keep_alive();
    // Made before the await: GCC 12 destroys twice what a conditional expression makes within a
    // co_await.
    if (!page) page = self.page_for(request, connection->peer);
    if (page->feed) {
      co_await follow(connection, request, *page);
      co_return;
    }
    Response response = to_response(request, std::move(*page), keep);
    connection->slow_from = Clock::now() + untaken_time_min;
    co_await http::async_write(stream, response, asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return;
    if (refused) co_await linger(stream);
  }
  error_code ignored;  // Closing cannot be helped further.
  stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
}

Page HttpServer::State::page_for(const Request& request, const std::string& peer) const {
  const auto method = request.get().method();
  const bool reads = method == http::verb::get || method == http::verb::head;
  if (!reads && method != http::verb::post && method != http::verb::delete_) {
    return sentence_page(405,
                         "pages are read here, by GET and HEAD, and acted on by POST and "
                         "DELETE");
  }
  const auto hosts = request.get().count(http::field::host);
  if (hosts > 1 || (hosts == 0 && request.get().version() >= 11)) {
    return sentence_page(400, "a request has one Host");
  }
  const auto text = [](auto view) { return std::string_view(view.data(), view.size()); };
  const auto header = [&](auto name) { return text(request.get()[name]); };
  PageRequest asked{.target = text(request.get().target()),
                    .host = header(http::field::host),
                    .origin = header(http::field::origin),
                    .accept = header(http::field::accept),
                    .last_event_id = header("Last-Event-ID"),
                    .method = reads ? "GET" : text(request.get().method_string()),
                    .authorization = header(http::field::authorization),
                    .peer = peer};
  if (const auto absolute = absolute_target(asked.target)) {
    if (absolute->host.empty()) return sentence_page(400, "the target names no host");
    // It takes the place of the Host, which is ignored then.
    asked.host = absolute->host;
    asked.target = absolute->path;
  }
  try {
    Page page = pages(asked);
    if (page.feed && method == http::verb::head) page.feed.reset();
    if (page.feed && followers >= followers_max) {
      return sentence_page(503, "16 readers follow already, which is the limit");
    }
    return page;
  } catch (const std::exception& error) {
    trouble("the status page at " + std::string(asked.target) + " failed: " + error.what());
    return sentence_page(500, reads ? "this page cannot be shown; the log says why"
                                    : "the action failed on the way; the log says why");
  }
}

/// Sends what the feed has, for as long as the client takes it.
asio::awaitable<void> HttpServer::State::follow(std::shared_ptr<Connection> connection,
                                                const Request& request, const Page& page) {
  State& self = *connection->state;
  const Counted counted(self.followers);
  beast::tcp_stream& stream = connection->stream;
  auto head = answer_to<http::response<http::empty_body>>(request, page);
  head.keep_alive(false);
  http::response_serializer<http::empty_body> serializer(head);
  error_code error;
  stream.expires_after(request_time_max);
  co_await http::async_write_header(stream, serializer,
                                    asio::redirect_error(asio::use_awaitable, error));
  if (!error) asio::co_spawn(self.io, notice_hang_up(connection), self.ended("a reader"));
  while (!error && !self.stopped && !connection->hung_up) {
    std::string text = page.feed->next();
    if (text.empty()) {
      connection->wake.expires_after(silence_max);
      error_code woken;
      co_await connection->wake.async_wait(asio::redirect_error(asio::use_awaitable, woken));
      if (woken) continue;
      text = silence;
    }
    stream.expires_after(request_time_max);
    co_await asio::async_write(stream, asio::buffer(text),
                               asio::redirect_error(asio::use_awaitable, error));
  }
  stream.close();
}

/// Notices when a follower hangs up; anything else that it sends is ignored.
asio::awaitable<void> HttpServer::State::notice_hang_up(std::shared_ptr<Connection> connection) {
  std::array<char, 1> unread;
  error_code error;
  co_await connection->stream.socket().async_read_some(
      asio::buffer(unread), asio::redirect_error(asio::use_awaitable, error));
  connection->hung_up = true;
  connection->wake.cancel();
}

asio::awaitable<void> HttpServer::State::linger(beast::tcp_stream& stream) {
  error_code error;
  stream.socket().shutdown(tcp::socket::shutdown_send, error);
  stream.expires_after(linger_time_max);
  std::array<char, 4096> unread;
  for (std::size_t total = 0; !error && total < linger_bytes_max;) {
    total += co_await stream.async_read_some(asio::buffer(unread),
                                             asio::redirect_error(asio::use_awaitable, error));
  }
}

HttpServer::HttpServer(asio::io_context& io, unique_fd listener, Pages pages, Trouble trouble)
    : state_(std::make_shared<State>(io, std::move(pages), std::move(trouble))) {
  const int family = local_address(listener.get()).storage.ss_family;
  if (family != AF_INET && family != AF_INET6) {
    throw Error(Errc::misuse, "the status is served over TCP only, not on " +
                                  local_address(listener.get()).to_string());
  }
  state_->acceptor.assign(family == AF_INET ? tcp::v4() : tcp::v6(), listener.get());
  (void)listener.release();  // It is the acceptor's now.
  state_->go_on_accepting();
}

HttpServer::~HttpServer() { stop(); }

void HttpServer::run() {
  for (;;) {
    try {
      state_->io.run();
      return;
    } catch (const std::exception& error) {
      state_->tell("serving the status", error);
    }
    std::this_thread::sleep_for(accept_pause);
    try {
      // Runs after the end of the coroutine that has failed.
      asio::post(state_->io, [state = state_] { state->go_on_accepting(); });
      // The next failure, or the next client that hangs up, comes here again.
    } catch (const std::exception&) {
    }
  }
}

std::size_t HttpServer::connections() const { return state_->connections.size(); }

std::size_t HttpServer::followers() const { return state_->followers; }

void HttpServer::news() {
  for (auto* connection : state_->connections) connection->wake.cancel();
}

void HttpServer::stop() {
  if (std::exchange(state_->stopped, true)) return;
  error_code ignored;  // Closing cannot be helped further.
  state_->acceptor.close(ignored);
  state_->pause.cancel();
  state_->work.reset();
  for (auto* connection : state_->connections) {
    connection->stream.cancel();
    connection->wake.cancel();
  }
}

}  // namespace dlaunch::rendezvous
