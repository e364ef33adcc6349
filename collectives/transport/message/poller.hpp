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
  /// Takes events of epoll(7). If it throws, the owners of other ready descriptors are told before
  /// the exception goes on.
  virtual void on_ready(std::uint32_t events) = 0;

 protected:
  ~Watched() = default;
};

/// All descriptors that a mesh waits for, in one set, which holds only those with something to wait
/// for. The cost of a wait depends on the news, not on the number of descriptors. Under the mesh's
/// lock, which is released while the set is waited for. A forked child has a copy of the set and
/// leaves it alone.
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
    /// Sets the events to wait for from here on; none: waits for nothing. Costs a system call only
    /// on a change. Throws Error{internal} if the kernel has no room.
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
    /// Counts the users of the place: events for an earlier one are stale.
    std::uint32_t turn = 0;
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
