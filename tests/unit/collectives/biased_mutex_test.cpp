#include "collectives/transport/biased_mutex.hpp"

#include "runtime/segment/remote_barrier.hpp"

#include <atomic>
#include <latch>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using transport::BiasedMutex;

namespace {

/// Enough for a first bias, and for a second one.
constexpr int many = 1000;

struct Locked {
  Locked() {
    if (allow_remote_barriers()) mutex.allow_bias();
  }
  void count() {
    const std::lock_guard lock(mutex);
    ++counted;
  }
  bool try_to_count() {
    const std::unique_lock lock(mutex, std::try_to_lock);
    if (lock) ++counted;
    return lock.owns_lock();
  }

  BiasedMutex mutex;
  long counted = 0;
};

/// Whether another thread gets it without waiting.
bool is_free(BiasedMutex& mutex) {
  bool got = false;
  std::thread([&] {
    got = mutex.try_lock();
    if (got) mutex.unlock();
  }).join();
  return got;
}

}  // namespace

TEST_CASE("a thread that is alone has the mutex, favoured or not") {
  Locked locked;
  for (int i = 0; i < many; ++i) {
    locked.mutex.lock();
    if (i == 0 || i == many - 1) CHECK(!is_free(locked.mutex));
    locked.mutex.unlock();
    if (i == 0 || i == many - 1) CHECK(is_free(locked.mutex));
  }
}

TEST_CASE("a thread that waits for the favoured one says so, and has the mutex after it") {
  Locked locked;
  for (int i = 0; i < many; ++i) locked.count();
  std::optional lock(std::unique_lock(locked.mutex));
  std::jthread other([&] { locked.count(); });
  while (!locked.mutex.is_wanted()) std::this_thread::yield();
  CHECK(locked.counted == many);
  lock.reset();
  other.join();
  CHECK(!locked.mutex.is_wanted());
  CHECK(locked.counted == many + 1);
}

TEST_CASE("the favoured thread waits for one that has tried and has got it") {
  Locked locked;
  for (int i = 0; i < many; ++i) locked.count();
  std::latch has_it(1);
  std::jthread other([&] {
    while (!locked.mutex.try_lock()) std::this_thread::yield();
    has_it.count_down();
    while (!locked.mutex.is_wanted()) std::this_thread::yield();
    ++locked.counted;
    locked.mutex.unlock();
  });
  has_it.wait();
  locked.count();
  CHECK(locked.counted == many + 2);
}

TEST_CASE("one thread at a time has it, whoever was favoured and whoever tries") {
  constexpr int turns = 30, threads = 3;
  Locked locked;
  std::atomic<long> expected{0};
  // Each in turn is alone for long enough to be favoured, while others come between at first, and
  // one tries all the time.
  std::jthread prober([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (locked.try_to_count()) expected.fetch_add(1, std::memory_order_relaxed);
    }
  });
  for (int turn = 0; turn < turns; ++turn) {
    std::vector<std::jthread> all;
    for (int thread = 0; thread < threads; ++thread) {
      all.emplace_back([&, thread] {
        const int times = thread == turn % threads ? 20 * many : many / 10;
        for (int i = 0; i < times; ++i) locked.count();
        expected.fetch_add(times, std::memory_order_relaxed);
      });
    }
  }
  prober.request_stop();
  prober.join();
  CHECK(locked.counted == expected.load());
}
