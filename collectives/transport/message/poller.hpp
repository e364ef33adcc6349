#pragma once

#include "runtime/base/os/unique_fd.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sys/epoll.h>

namespace dlaunch::transport {

/// The owner of a descriptor that a poller watches. Told under the mesh's lock; it may end then.
class Watched {
 public:
  /// Events of epoll(7). If it throws, the others that are ready are told before that goes on.
  virtual void on_ready(std::uint32_t events) = 0;

 protected:
  ~Watched() = default;
};

/// All descriptors that a mesh waits for: one set, of those that have something to wait for alone.
/// A wait costs as much as there is news, however many there are.
/// Under the mesh's lock, which is released while the set is waited for. A forked child has a copy
/// of the set and leaves it alone.
class Poller {
 public:
  /// A descriptor's place in the set, empty at first. Ends before the descriptor is closed: the
  /// kernel would keep it as long as a forked child has it open.
  class Watch {
   public:
    Watch() noexcept = default;
    /// `watched` is borrowed.
    Watch(Poller& poller, int fd, Watched& watched, std::uint32_t events);
    Watch(Watch&& other) noexcept;
    Watch& operator=(Watch&& other) noexcept;
    ~Watch() { end(); }
    /// Waits for these from here on, and for nothing at all if there are none; costs a system call
    /// only where that changes. Throws Error{internal} where the kernel has no room.
    void want(std::uint32_t events);

   private:
    void end() noexcept;

    Poller* poller_ = nullptr;
    int fd_ = -1;
    std::uint32_t place_ = 0;
    std::uint32_t events_ = 0;
  };

  /// Throws Error{internal}.
  Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  /// The descriptors that are waited for.
  std::size_t size() const noexcept { return size_; }
  /// Waits until one is ready, and tells the owners of all that are. `released(wait)` runs `wait`
  /// without the lock. For one thread at a time. Whether any was ready.
  template <class Released>
  bool wait(int timeout_ms, const Released& released) {
    ready_.resize(size_ + 1);
    const int count = released([&] { return wait_for_any(timeout_ms); });
    return tell(count);
  }
  /// The same without waiting.
  bool look() {
    ready_.resize(size_ + 1);
    return tell(wait_for_any(0));
  }
  /// Readable while one is ready.
  int fd() const noexcept { return set_.get(); }

 private:
  struct Place {
    Watched* watched = nullptr;
    std::uint32_t turn = 0;  ///< Counts those that had the place: news of an earlier one are stale.
  };

  std::uint32_t take_place(Watched& watched);
  void control(int operation, int fd, std::uint32_t place, std::uint32_t events);
  int wait_for_any(int timeout_ms) noexcept;
  bool tell(int count);

  unique_fd set_;
  std::size_t size_ = 0;
  std::vector<Place> places_;
  std::vector<std::uint32_t> free_places_;
  std::vector<epoll_event> ready_;
};

}  // namespace dlaunch::transport
