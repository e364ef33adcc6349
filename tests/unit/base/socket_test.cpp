#include "runtime/base/os/socket.hpp"

#include "runtime/base/bytes.hpp"
#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <optional>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {
std::string failure(const auto& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
}  // namespace

TEST_CASE("a port is bound once; a second bind names the owner") {
  const unique_fd first = listen_tcp(resolve("127.0.0.1", 0).at(0));
  const Address at = local_address(first.get());
  CHECK(at.port() != 0);
  CHECK(at.is_loopback());
  const std::string why = failure([&] { listen_tcp(at); });
  CHECK(why.find(at.to_string()) != std::string::npos);
  CHECK(why.find("pid " + std::to_string(::getpid())) != std::string::npos);
}

TEST_CASE("connecting says which step failed") {
  unique_fd once = listen_tcp(resolve("127.0.0.1", 0).at(0));
  const Address at = local_address(once.get());
  const unique_fd connected = connect_tcp(at, deadline_after(std::chrono::seconds(5)));
  CHECK(peer_address(connected.get()).to_string() == at.to_string());
  once.reset();
  CHECK(failure([&] {
          connect_tcp(at, deadline_after(std::chrono::seconds(5)));
        }).find("refused") != std::string::npos);
  CHECK(failure([&] { resolve("no-such-host.invalid", 1); }).find("looking up") !=
        std::string::npos);
}

TEST_CASE("nobody listens: a socket is never connected to itself instead") {
  // The kernel gives a connecting socket an even port of its range, and sooner or later this one.
  std::optional<Address> free;
  while (!free) {
    const unique_fd once = listen_tcp(resolve("127.0.0.1", 0).at(0));
    const auto below = static_cast<std::uint16_t>(local_address(once.get()).port() - 1);
    try {
      free = local_address(listen_tcp(resolve("127.0.0.1", below).at(0)).get());
    } catch (const Error& error) {
      CHECK(error.code() == Errc::refused);  // Somebody has it; try another.
    }
  }
  for (int attempt = 0; attempt < 40000; ++attempt) {
    REQUIRE_THROWS_AS(connect_tcp(*free, deadline_after(std::chrono::seconds(5))), Error);
  }
}

TEST_CASE("deadlines do not overflow") {
  CHECK(deadline_after(Clock::duration::max()) == Clock::time_point::max());
  CHECK(poll_timeout_ms(Clock::time_point::max()) == -1);
  CHECK(poll_timeout_ms(Clock::now() - std::chrono::seconds(1)) == 0);
}

TEST_CASE("a reader never reads past its input or over a limit") {
  Bytes out;
  ByteWriter writer(out);
  writer.integer(std::uint16_t{7});
  writer.text("abc");
  ByteReader reader(out);
  CHECK(reader.integer<std::uint16_t>() == 7);
  CHECK(reader.text(3) == "abc");
  CHECK(reader.complete());
  ByteReader limited(BytesView(out).subspan(2));
  CHECK(limited.text(2).empty());
  CHECK_FALSE(limited.ok());
  ByteReader cut(BytesView(out).first(4));
  cut.integer<std::uint64_t>();
  CHECK_FALSE(cut.ok());
}

TEST_CASE("of several who begin to listen on a port at the same moment one gets it") {
  constexpr int rivals = 2, rounds = 1000;
  std::barrier together(rivals);
  std::vector<unique_fd> listeners(rivals);
  std::atomic<std::uint16_t> port{0};
  int alone = 0;
  std::vector<std::jthread> threads;
  for (int rival = 0; rival < rivals; ++rival) {
    threads.emplace_back([&, rival] {
      unique_fd& listener = listeners[static_cast<std::size_t>(rival)];
      for (int round = 0; round < rounds; ++round) {
        if (rival == 0)
          port = local_address(listen_tcp(resolve("127.0.0.1", 0).front()).get()).port();
        together.arrive_and_wait();
        listener = try_listen_tcp(resolve("127.0.0.1", port).front());
        together.arrive_and_wait();
        if (rival == 0) {
          const auto winners =
              std::count_if(listeners.begin(), listeners.end(),
                            [](const auto& one) { return static_cast<bool>(one); });
          if (winners == 1) ++alone;
        }
        together.arrive_and_wait();
        listener.reset();
      }
    });
  }
  threads.clear();
  CHECK(alone == rounds);
}
