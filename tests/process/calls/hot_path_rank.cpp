// One of two ranks that makes small calls again and again, and prints what they took that a hot
// path has no business with: "NAME: A allocations, P getpids" for each kind. With an argument: in
// C.
#include "tests/process/calls/hot_path_c.h"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>
#include <thread>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

namespace {

thread_local long allocations = 0;
thread_local long getpids = 0;

}  // namespace

// The libraries, too, take their memory by these, and call this getpid. Not inlined: a compiler
// that sees through one of them alone takes them for no pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  void* place = std::malloc(bytes == 0 ? 1 : bytes);
  if (place == nullptr) throw std::bad_alloc();
  return place;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto to = static_cast<std::size_t>(alignment);
  void* place = std::aligned_alloc(to, (bytes + to - 1) / to * to);
  if (place == nullptr) throw std::bad_alloc();
  return place;
}
[[gnu::noinline]] void operator delete(void* place) noexcept { std::free(place); }
[[gnu::noinline]] void operator delete(void* place, std::size_t) noexcept { std::free(place); }
[[gnu::noinline]] void operator delete(void* place, std::align_val_t) noexcept { std::free(place); }
[[gnu::noinline]] void operator delete(void* place, std::size_t, std::align_val_t) noexcept {
  std::free(place);
}
extern "C" [[gnu::visibility("default")]] pid_t getpid() noexcept {
  ++getpids;
  return static_cast<pid_t>(::syscall(SYS_getpid));
}

namespace {

using namespace dlaunch;
using namespace std::chrono_literals;

constexpr int first_calls = 3000;  ///< Until pools, tables and rings are as large as they get.
constexpr int counted_calls = 1000;
constexpr int counted_rounds = 3;
constexpr std::size_t window = 64;

void check(bool holds, const char* what) {
  if (holds) return;
  std::printf("failed: %s\n", what);
  std::exit(1);
}

/// Counts the least of a few rounds: the agent's news, which may come in one, take memory, too.
void count(const char* name, const std::function<void()>& call) {
  for (int i = 0; i < first_calls; ++i) call();
  long least_allocated = std::numeric_limits<long>::max(), least_asked = least_allocated;
  for (int round = 0; round < counted_rounds; ++round) {
    const long allocated = allocations, asked = getpids;
    for (int i = 0; i < counted_calls; ++i) call();
    least_allocated = std::min(least_allocated, allocations - allocated);
    least_asked = std::min(least_asked, getpids - asked);
  }
  std::printf("%s: %ld allocations, %ld getpids\n", name, least_allocated, least_asked);
}

/// Parks as many messages as may come before they are received later: the first ones take memory.
void park_some(Communicator& comm) {
  long out = 1, in = 0;
  const int peer = 1 - comm.rank();
  for (std::size_t i = 0; i < 2 * window; ++i) comm.send(out, peer);
  comm.send(out, peer, {.tag = 1});
  comm.recv(in, peer, {.tag = 1});
  for (std::size_t i = 0; i < 2 * window; ++i) comm.recv(in, peer);
}

/// A message that is so small has left when isend returns: nothing moves it later.
void check_isend(Communicator& comm, Store& store) {
  comm.barrier();
  long value = 8;
  if (comm.rank() == 0) {
    const Work work = comm.isend(value, 1);
    std::printf("isend: %s\n", work.done() ? "done" : "on its way");
    store.wait("received", Clock::now() + 60s);
  } else {
    comm.recv(value, 0);
    store.set("received", {});
  }
}

/// How many of the calls that this thread waits for run on it.
void count_own(Communicator& comm) {
  const auto self = std::this_thread::get_id();
  int own = 0;
  for (int i = 0; i < counted_calls; ++i) {
    float value = 1;
    Work work = comm.start_all_reduce(value);
    work.on_complete([&](const std::exception_ptr&) { own += std::this_thread::get_id() == self; });
    if (i % 2 == 0) work.wait();
    while (!work.test()) continue;
  }
  std::printf("on the thread that waits or tests: %s\n", own > counted_calls / 2 ? "most" : "few");
}

void calls_in_c() {
  check(c_begin() == 1, "a world in C");
  const int peer = 1 - std::atoi(std::getenv("RANK"));
  check(c_park_some(peer) == 1, "messages in C that wait");
  count("messages in C", [&] { check(c_messages(peer) == 1, "the message in C"); });
  count("windows in C", [&] { check(c_windows(peer) == 1, "the messages in C"); });
  count("exchanges in C", [&] { check(c_exchanges(peer) == 1, "the exchange in C"); });
  count("started in C", [&] { check(c_started() == 1, "the sum in C"); });
  c_end();
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) {
    calls_in_c();
    return 0;
  }
  const World world = World::from_env();
  Communicator comm(world);
  const int peer = 1 - comm.rank();
  check(allocations > 0, "the count: a communicator takes memory");
  park_some(comm);
  count("blocking", [&] {
    long value = 1;
    if (comm.rank() == 0) comm.send(value, peer);
    comm.recv(value, peer);
    if (comm.rank() == 1) comm.send(value, peer);
  });
  count("messages", [&] {
    long out = 1, in = 0;
    Work receiving = comm.irecv(in, peer);
    Work sending = comm.isend(out, peer);
    receiving.wait();
    sending.wait();
    check(in == 1, "the message");
  });
  std::array<long, window> out{}, in{};
  std::vector<Work> works;
  works.reserve(2 * window);
  count("windows", [&] {
    for (long& value : in) works.push_back(comm.irecv(value, peer));
    for (const long& value : out) works.push_back(comm.isend(value, peer));
    wait_all(works);
    works.clear();
  });
  count("started", [&] {
    float value = 1;
    comm.start_all_reduce(value).wait();
    check(value == 2, "the sum");
  });
  check_isend(comm, *world.store());
  count_own(comm);
  return 0;
}
