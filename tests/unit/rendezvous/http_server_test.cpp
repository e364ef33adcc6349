// The status server by real sockets, in the hands of clients that mean no good.
#include "rendezvous/http/http_server.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"

#include <array>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace std::chrono_literals;

namespace {

Clock::time_point soon() { return Clock::now() + 20s; }

struct Flood : Feed {
  std::string next() override { return std::string(64u << 10, 'x'); }
};
/// Says what it was given, once, to one of those that follow.
struct Given : Feed {
  std::string next() override { return std::exchange(text, {}); }
  std::string text;
};

/// A server on a thread of its own that shows each path it is asked for.
class Served {
 public:
  Served() {
    unique_fd listener = listen_tcp(resolve("127.0.0.1", 0).at(0));
    address = local_address(listener.get());
    server_ = std::make_unique<HttpServer>(
        io_, std::move(listener),
        [this](const PageRequest& request) {
          const std::string_view target = request.target;
          if (target == "/headers") {
            return Page{.body = std::string(request.host) + "|" + std::string(request.origin) +
                                "|" + std::string(request.accept) + "|" +
                                std::string(request.last_event_id)};
          }
          if (target == "/action") {
            return Page{.body = std::string(request.method) + "|" +
                                std::string(request.authorization) + "|" +
                                std::string(request.peer)};
          }
          if (target == "/denied") return sentence_page(401, "no");
          if (target == "/flood") return Page{.feed = std::make_shared<Flood>()};
          if (target == "/feed") return Page{.feed = feed_};
          if (target == "/large") return Page{.body = std::string(64u << 20, 'x')};
          if (target == "/long") return Page{.body = std::string(8u << 20, 'x')};
          if (target == "/bug") throw std::runtime_error("a page that fails");
          return Page{.body = "at " + std::string(target)};
        },
        [](const std::string&) {});
    thread_ = std::jthread([this] { io_.run(); });
  }
  ~Served() {
    boost::asio::post(io_, [this] { server_->stop(); });
    work_.reset();
  }
  std::size_t connections() {
    return on_loop([this] { return server_->connections(); });
  }
  std::size_t followers() {
    return on_loop([this] { return server_->followers(); });
  }
  /// What those that follow /feed hear next; one of them does.
  void say(const std::string& text) {
    on_loop([&] {
      feed_->text = text;
      server_->news();
      return std::size_t{0};
    });
  }

  Address address;

 private:
  std::size_t on_loop(const std::function<std::size_t()>& act) {
    std::promise<std::size_t> result;
    boost::asio::post(io_, [&] { result.set_value(act()); });
    return result.get_future().get();
  }

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::shared_ptr<Given> feed_ = std::make_shared<Given>();
  std::unique_ptr<HttpServer> server_;
  std::jthread thread_;
};

class Client {
 public:
  explicit Client(const Address& to) : fd_(connect_tcp(to, soon())) {}

  /// False once the server has closed.
  bool say(std::string_view text) const {
    while (!text.empty()) {
      const auto size = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (size <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(size));
    }
    return true;
  }
  /// Reads up to and with `text`, or to the end; fails the test after 20 s.
  std::string hear(const std::string& text) {
    const auto deadline = soon();
    std::string heard;
    std::array<char, 4096> some{};
    while (heard.find(text) == std::string::npos || text.empty()) {
      pollfd wait{fd_.get(), POLLIN, 0};
      REQUIRE(::poll(&wait, 1, poll_timeout_ms(deadline)) == 1);
      const auto size = ::recv(fd_.get(), some.data(), some.size(), 0);
      if (size <= 0) break;
      heard.append(some.data(), static_cast<std::size_t>(size));
    }
    return heard;
  }
  std::string to_the_end() { return hear(""); }

 private:
  unique_fd fd_;
};

std::string asked(const Address& at, std::string_view request) {
  Client client(at);
  client.say(request);
  return client.to_the_end();
}

std::string code_of(const std::string& answer) { return answer.substr(0, 12); }

}  // namespace

TEST_CASE("GET and HEAD, one after the other on one connection") {
  Served served;
  Client client(served.address);
  client.say("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string first = client.hear("at /a");
  CHECK(code_of(first) == "HTTP/1.1 200");
  CHECK(first.find("Cache-Control: no-store") != std::string::npos);
  client.say(
      "HEAD /abc HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\nConnection: "
      "close\r\n\r\n");
  const std::string rest = client.to_the_end();
  CHECK(rest.find("Content-Length: 7") != std::string::npos);
  CHECK(rest.find("at /abc") == std::string::npos);
  CHECK(rest.ends_with("at /b"));
  CHECK(code_of(asked(served.address, "GET /c HTTP/1.0\r\n\r\n")) == "HTTP/1.0 200");
}

TEST_CASE("what is neither a read nor an action is refused, by number") {
  Served served;
  const auto code = [&](std::string_view request) {
    return code_of(asked(served.address, request));
  };
  CHECK(code("PUT /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") == "HTTP/1.1 405");
  CHECK(code("PATCH /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") == "HTTP/1.1 405");
  CHECK(code("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello") == "HTTP/1.1 400");
  CHECK(code("BREW /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") == "HTTP/1.1 405");
  CHECK(code("GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello") == "HTTP/1.1 400");
  CHECK(code("GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") ==
        "HTTP/1.1 400");
  CHECK(code("GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n") ==
        "HTTP/1.1 400");
  CHECK(code("hello\r\n\r\n") == "HTTP/1.1 400");
  CHECK(code("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") == "HTTP/1.1 400");
  CHECK(code(std::string("\x16\x03\x01\x02\0\x01\0\r\n\r\n", 11)) == "HTTP/1.1 400");
  CHECK(code("GET /a HTTP/1.1\r\nHost: x\r\nX: " + std::string(9000, 'x') + "\r\n\r\n") ==
        "HTTP/1.1 431");
  CHECK(code("GET /" + std::string(100'000, 'x') + " HTTP/1.1\r\nHost: x\r\n\r\n") ==
        "HTTP/1.1 431");
  CHECK(asked(served.address, "PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .find("Allow: GET, HEAD") != std::string::npos);
}

TEST_CASE("a page sees the headers it may need, and a browser what it may do with a page") {
  Served served;
  const std::string answer =
      asked(served.address,
            "GET /headers HTTP/1.1\r\nHost: h:1\r\norigin: http://o\r\nAccept: a/b, c/d\r\n"
            "LAST-EVENT-ID: 7\r\nConnection: close\r\n\r\n");
  CHECK(answer.ends_with("h:1|http://o|a/b, c/d|7"));
  CHECK(answer.find("X-Content-Type-Options: nosniff\r\n") != std::string::npos);
  CHECK(answer.find("Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n") !=
        std::string::npos);
  CHECK(answer.find("Cross-Origin-Resource-Policy: same-origin\r\n") != std::string::npos);
  CHECK(code_of(asked(served.address,
                      "GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n")) ==
        "HTTP/1.1 400");
}

TEST_CASE("a request of HTTP/1.1 has a Host, or a target with one, which then counts") {
  Served served;
  const auto seen = [&](const std::string& request) {
    return asked(served.address, request + "Connection: close\r\n\r\n");
  };
  CHECK(code_of(seen("GET /a HTTP/1.1\r\n")) == "HTTP/1.1 400");
  CHECK(code_of(seen("GET http://a/b HTTP/1.1\r\n")) == "HTTP/1.1 400");
  CHECK(code_of(seen("GET http:///b HTTP/1.1\r\nHost: h\r\n")) == "HTTP/1.1 400");
  CHECK(seen("GET http://a/b?c HTTP/1.1\r\nHost: h\r\n").ends_with("at /b?c"));
  CHECK(seen("GET HTTP://a HTTP/1.1\r\nHost: h\r\n").ends_with("at /"));
  CHECK(seen("GET http://a:1/headers HTTP/1.1\r\nHost: h\r\n").ends_with("a:1|||"));
}

TEST_CASE("an action is told by its method, with who asks and what allows it") {
  Served served;
  const auto seen = [&](const std::string& request) {
    const auto answer = asked(served.address, request + "Connection: close\r\n\r\n");
    return answer.substr(answer.find("\r\n\r\n") + 4);
  };
  CHECK(seen("POST /action HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nContent-Length: 0\r\n")
            .starts_with("POST|Bearer t|127.0.0.1:"));
  CHECK(seen("DELETE /action HTTP/1.1\r\nHost: x\r\n").starts_with("DELETE||127.0.0.1:"));
  CHECK(seen("GET /action HTTP/1.1\r\nHost: x\r\n").starts_with("GET||"));
  CHECK(asked(served.address, "GET /denied HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .find("WWW-Authenticate: Bearer\r\n") != std::string::npos);
}

TEST_CASE("those that follow hear what is new, until they go") {
  Served served;
  {
    Client client(served.address);
    client.say("GET /feed HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(client.hear("\r\n\r\n").find("Connection: close") != std::string::npos);
    served.say("first");
    client.hear("first");
    served.say("second");
    client.hear("second");
    CHECK(served.followers() == 1);
  }
  const auto deadline = soon();
  while (served.followers() > 0) REQUIRE(Clock::now() < deadline);
  // HEAD is told what it would get, and does not wait for it.
  const std::string head = asked(served.address, "HEAD /feed HTTP/1.0\r\n\r\n");
  CHECK(code_of(head) == "HTTP/1.0 200");
}

TEST_CASE("16 may follow, the next is told so, and one that does not read is cut off") {
  Served served;
  std::vector<Client> clients;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back(served.address);
    clients.back().say("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(clients.back().hear("HTTP/1.1 200").starts_with("HTTP/1.1 200"));
  }
  const std::string next = asked(served.address, "GET /feed HTTP/1.0\r\n\r\n");
  CHECK(code_of(next) == "HTTP/1.0 503");
  CHECK(next.ends_with("16 readers follow already, which is the limit\n"));
  CHECK(asked(served.address, "GET /a HTTP/1.0\r\n\r\n").ends_with("at /a"));
  const auto deadline = soon();
  while (served.followers() > 0) REQUIRE(Clock::now() < deadline);
}

TEST_CASE("a page that fails is a 500, and nothing else fails") {
  Served served;
  CHECK(code_of(asked(served.address, "GET /bug HTTP/1.0\r\n\r\n")) == "HTTP/1.0 500");
  CHECK(asked(served.address, "GET /a HTTP/1.0\r\n\r\n").ends_with("at /a"));
}

TEST_CASE("whoever says nothing, or reads nothing, is cut off; others are served meanwhile") {
  Served served;
  Client mute(served.address), half(served.address), deaf(served.address);
  half.say("GET /a HT");
  deaf.say("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(deaf.hear("HTTP/1.1 200").starts_with("HTTP/1.1 200"));
  CHECK(asked(served.address, "GET /a HTTP/1.0\r\n\r\n").ends_with("at /a"));
  CHECK(mute.to_the_end().empty());
  CHECK(half.to_the_end().empty());
  // It was cut off in the midst of its page.
  CHECK(deaf.to_the_end().size() < (64u << 20));
  CHECK(asked(served.address, "GET /a HTTP/1.0\r\n\r\n").ends_with("at /a"));
}

TEST_CASE("64 are served at once, and the next one in the place of the idlest") {
  Served served;
  std::vector<Client> clients;
  for (int i = 0; i < 64; ++i) {
    clients.emplace_back(served.address);
    clients.back().say("GET /n HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(clients.back().hear("at /n").ends_with("at /n"));
  }
  Client next(served.address);
  next.say("GET /next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  CHECK(next.to_the_end().ends_with("at /next"));
  CHECK(clients.front().to_the_end().empty());
  clients.back().say("GET /still HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(clients.back().hear("at /still").ends_with("at /still"));
  CHECK(served.connections() <= 64);
}

TEST_CASE("64 who do not read their pages keep nobody out: they go one by one, as others come") {
  Served served;
  std::vector<Client> deaf;
  const auto began = Clock::now();
  for (int i = 0; i < 64; ++i) {
    deaf.emplace_back(served.address);
    deaf.back().say("GET /long HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(deaf.back().hear("HTTP/1.1 200").starts_with("HTTP/1.1 200"));
  }
  for (int i = 0; i < 8; ++i) {
    CHECK(asked(served.address, "GET /next HTTP/1.0\r\n\r\n").ends_with("at /next"));
  }
  // A page that nobody takes is given up after five seconds, which a crowded machine may need for
  // all this.
  const std::size_t kept = served.connections();
  if (Clock::now() - began < 5s) CHECK(kept >= 48);
  CHECK(deaf.front().to_the_end().size() < (8u << 20));
}

TEST_CASE("garbage of every kind, many times") {
  Served served;
  std::uint32_t seed = 1;
  for (int round = 0; round < 200; ++round) {
    std::string bytes;
    for (int i = 0; i < 64; ++i) {
      seed = seed * 1664525u + 1013904223u;
      bytes += static_cast<char>(seed >> 24);
    }
    Client client(served.address);
    client.say(bytes + "\r\n\r\n");
    const std::string answer = client.to_the_end();
    CHECK(answer.starts_with("HTTP/1.1 400"));
  }
  CHECK(asked(served.address, "GET /a HTTP/1.0\r\n\r\n").ends_with("at /a"));
}
