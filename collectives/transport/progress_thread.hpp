#pragma once

#include "collectives/transport/links.hpp"

#include <atomic>
#include <stop_token>
#include <thread>
#include <vector>

namespace dlaunch::transport {

/// Moves started messages while no thread is in a call. It has a thread from the first message that
/// was not complete at once; the thread sleeps while there is nothing to move, or others do it.
class ProgressThread {
 public:
  /// `mesh` outlives it.
  explicit ProgressThread(Links& mesh) : mesh_(mesh) {}
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;
  ~ProgressThread();

  /// It has, or had, a thread. Free.
  bool is_used() const noexcept { return used_; }

  // ---- With the mesh's lock held. ----

  /// These were posted; they are borrowed until they were removed.
  void add(const Receive& receive);
  void add(const Outgoing& outgoing);
  void remove(const Receive& receive) { std::erase(receives_, &receive); }
  void remove(const Outgoing& outgoing) { std::erase(outgoings_, &outgoing); }
  /// Moving them failed, and nobody has tried again since: who waits for one of them will see why.
  bool has_failed() const noexcept { return failed_; }

 private:
  void begin();
  bool is_wanted();
  void run(const std::stop_token& stop);

  Links& mesh_;
  std::vector<const Receive*> receives_;
  std::vector<const Outgoing*> outgoings_;
  bool failed_ = false;
  std::atomic<bool> used_{false};
  std::jthread thread_;
};

}  // namespace dlaunch::transport
