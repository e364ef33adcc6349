// A client's promises over a connection that breaks: calls count once, watches miss no outcome.
#include "runtime/store/client/watched.hpp"
#include "tests/support/store_server.hpp"

#include <atomic>

#include <doctest/doctest.h>
#include <sys/socket.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

using Kind = KeyChange::Kind;

std::optional<Bytes> value(std::string_view text) {
  const BytesView bytes = as_bytes(text);
  return Bytes(bytes.begin(), bytes.end());
}

/// The next change as "kind value", "-" for none.
std::string next(store::Watched& watched) {
  if (!watched.has_news()) return "-";
  const KeyChange change = watched.take();
  CHECK(change.key == "k");
  return std::to_string(static_cast<int>(change.kind)) + " " + text(change.value);
}

}  // namespace

TEST_CASE("the first value is where a watch begins, later ones are compared with the last") {
  store::Watched watched("k");
  watched.is_now(value("a"));
  CHECK(next(watched) == "-");
  watched.is_now(value("a"));
  CHECK(next(watched) == "-");
  watched.is_now(value("b"));
  CHECK(next(watched) == "1 b");
  watched.is_now(std::nullopt);
  CHECK(next(watched) == "2 (absent)");
  watched.is_now(std::nullopt);
  CHECK(next(watched) == "-");
  watched.is_now(value(""));
  CHECK(next(watched) == "0 ");
  watched.changed({Kind::updated, "k", value("c")});
  watched.is_now(value("c"));  // Was asked for before, and answered after.
  watched.is_now(value("d"));
  CHECK(next(watched) == "1 c");
  CHECK(next(watched) == "1 d");
  CHECK(next(watched) == "-");
}

TEST_CASE("a change before the first value is told once; unread ones have a limit") {
  store::Watched watched("k");
  watched.changed({Kind::created, "k", value("a")});
  watched.is_now(value("a"));
  CHECK(next(watched) == "0 a");
  CHECK(next(watched) == "-");
  for (std::size_t i = 0; i <= store::Watched::unread_changes_max; ++i) {
    watched.changed({Kind::updated, "k", value(std::to_string(i))});
  }
  CHECK(next(watched) == "1 1");  // The oldest was dropped.
}

TEST_CASE("a client whose connection breaks comes back and goes on") {
  ServerThread server;
  auto options = ServerThread::options(99);
  std::mutex mutex;
  int current = -1;
  std::atomic<int> connects = 0;
  options.reconnect = [&](Clock::time_point deadline) {
    unique_fd fd = connect_tcp(server.native_address, deadline);
    const std::lock_guard lock(mutex);
    current = fd.get();
    ++connects;
    return fd;
  };
  unique_fd fd = options.reconnect(soon());
  store::Client client(std::move(fd), options, nullptr, soon());
  store::Client other = server.client();
  for (int i = 1; i <= 20; ++i) {
    {
      const std::lock_guard lock(mutex);
      ::shutdown(current, SHUT_RDWR);  // As a network would, unasked.
    }
    CHECK(client.add("n", 1) == i);
  }
  CHECK(connects == 21);
  {
    // Also while it waits.
    std::jthread breaking([&] {
      const std::lock_guard lock(mutex);
      ::shutdown(current, SHUT_RDWR);
    });
    std::jthread setting([&] {
      while (connects < 22) std::this_thread::yield();
      other.set("late", as_bytes("v"));
    });
    CHECK(text(client.wait("late", soon())) == "v");
  }
  CHECK(client.add("n", 0) == 20);
}

TEST_CASE("a watch whose connection breaks tells what it missed, as one change") {
  ServerThread server;
  auto options = ServerThread::options(98);
  int current = -1;
  options.reconnect = [&](Clock::time_point deadline) {
    unique_fd fd = connect_tcp(server.native_address, deadline);
    current = fd.get();
    return fd;
  };
  unique_fd fd = options.reconnect(soon());
  store::Client watcher(std::move(fd), options, nullptr, soon());
  store::Client other = server.client();
  // Nobody reads while nothing is called, so the connection stays cut until the next call.
  const auto missed = [&](const std::function<void()>& changes) {
    ::shutdown(current, SHUT_RDWR);
    changes();
    return watcher.watch("k", soon());
  };
  CHECK(failure([&] { watcher.watch("k", Clock::now() + 10ms); }).first == Errc::timeout);
  CHECK_FALSE(watcher.get("k"));  // The watch stands, and knows that there is no such key.

  auto change = missed([&] {
    other.set("k", as_bytes("1"));
    other.set("k", as_bytes("2"));
  });
  CHECK(change.kind == Kind::created);
  CHECK(change.key == "k");
  CHECK(text(change.value) == "2");
  change = missed([&] { other.set("k", as_bytes("3")); });
  CHECK(change.kind == Kind::updated);
  CHECK(text(change.value) == "3");
  change = missed([&] { other.erase("k"); });
  CHECK(change.kind == Kind::deleted);
  CHECK_FALSE(change.value);

  // A change before the cut is told first, and an undone one is no change.
  other.set("k", as_bytes("4"));
  watcher.get("k");  // A reader takes the change in.
  change = missed([&] {
    other.set("k", as_bytes("5"));
    other.set("k", as_bytes("4"));
  });
  CHECK(change.kind == Kind::created);
  CHECK(text(change.value) == "4");
  watcher.get("k");
  CHECK(failure([&] { watcher.watch("k", Clock::now()); }).first == Errc::timeout);
  // Nothing is told twice.
  other.set("k", as_bytes("6"));
  change = watcher.watch("k", soon());
  CHECK(change.kind == Kind::updated);
  CHECK(text(change.value) == "6");
}
