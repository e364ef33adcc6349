#pragma once

#include "rendezvous/service/service.hpp"
#include "rendezvous/state/reserve.hpp"
#include "rendezvous/state/state_file.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace dlaunch::rendezvous {

/// Writes changes to a state file, on a thread of its own. What is sealed while a batch is being
/// written is the next batch, so that one sync serves all who wait. A full disk is waited out: the
/// batch is tried again until it is written, and refusal() says meanwhile that no more shall come.
class Writer {
 public:
  /// Called on the writer's thread, and not to block it.
  struct Events {
    std::function<void()> written;            ///< durable() has grown.
    std::function<void(std::string)> failed;  ///< The writer has ended: why.
    std::function<void(LogLine::Level, std::string)> log;
  };
  Writer(StateFile file, Events events);
  /// What was sealed is written, unless the disk is full.
  ~Writer();

  // ---- Called on the thread that serves ----

  void append(Change change);
  /// As store::Commits::seal.
  void seal();
  std::uint64_t recorded() const { return recorded_; }

  // ---- Called on any thread ----

  std::uint64_t durable() const { return durable_.load(std::memory_order_acquire); }
  std::string refusal() const;

 private:
  /// With the lock: what is filling is sealed.
  void hand_over();
  void run(const std::stop_token& stop);
  /// False where it was told to stop before the disk had room.
  bool write(const std::vector<Change>& batch, const std::stop_token& stop);
  void look_for_room();

  StateFile file_;
  Reserve reserve_;
  const Events events_;
  const std::string refusal_;

  std::vector<Change> filling_;  ///< Not sealed yet.
  std::size_t filling_bytes_ = 0;
  std::uint64_t recorded_ = 0;

  std::mutex mutex_;
  std::condition_variable_any
      changed_;  ///< There is a batch, or it was taken, or the end has come.
  std::vector<Change> sealed_;
  std::size_t sealed_bytes_ = 0;
  std::uint64_t sealed_last_ = 0;
  bool ended_ = false;  ///< The thread takes no further batch.

  std::atomic<std::uint64_t> durable_ = 0;
  std::atomic<bool> full_ = false;  ///< The disk, or as good as that.
  std::jthread thread_;             ///< Last, so that it ends first.
};

}  // namespace dlaunch::rendezvous
