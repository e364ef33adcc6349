#pragma once

#include "rendezvous/service/job_journal.hpp"
#include "rendezvous/service/service.hpp"
#include "rendezvous/state/state_place.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace dlaunch::rendezvous {

/// Writes changes to a place, on a thread of its own. Changes that are sealed while a batch is
/// being written make up the next batch, so that one sync serves all that wait. If the place takes
/// nothing for now, the batch is tried again until it is written, and refusal() says meanwhile that
/// no more should come. A write that hangs is noticed by a second thread: changes wait for it, as
/// refusing them would help nobody, but trouble() says so.
class Writer {
 public:
  /// Called on one of the writer's threads; must not block it.
  struct Events {
    /// durable() may have grown, or is_ours() be true, or blocked() another.
    std::function<void()> written;
    std::function<void(std::string)> failed;  ///< The writer has ended: why.
    std::function<void(LogLine::Level, std::string)> log;
  };
  Writer(std::unique_ptr<StatePlace> place, Events events);
  /// Writes sealed changes before it ends, unless the place takes nothing now.
  ~Writer();

  // ---- Called on the thread that serves ----

  void append(Change change);
  /// As store::Commits::seal.
  void seal();
  std::uint64_t recorded() const { return recorded_; }
  std::uint64_t recorded_bytes() const { return recorded_bytes_; }
  /// As JobJournal::back_up. What was sealed before is in the copy.
  std::string back_up(const std::string& name);

  // ---- Called on any thread ----

  std::uint64_t durable() const { return durable_.load(std::memory_order_acquire); }
  std::uint64_t durable_bytes() const { return durable_bytes_.load(std::memory_order_acquire); }
  bool blocked() const { return blocked_; }
  /// Waits until so many changes are; false at the deadline, and where no more will be.
  bool await_durable(std::uint64_t changes, Clock::time_point deadline);
  bool is_ours() const { return place_->is_ours(); }
  std::string refusal() const;
  /// The same, while somebody has to do something first.
  std::string lasting_refusal() const;
  /// The refusal, or that a write hangs; empty: neither.
  std::string trouble() const;
  /// Since when messages that follow from the last change wait: for a write, or for the place to be
  /// surely ours.
  std::optional<Clock::time_point> held_since() const;
  BackupStatus backup() const;
  StateFigures figures() const;

 private:
  /// Changes that are written as a whole or not at all.
  struct Seal {
    std::vector<Change> changes;
    std::size_t bytes = 0;
  };
  /// With the lock: seals the changes that have gathered.
  void hand_over();
  /// With the lock: as much of what is sealed as is written at once, but one seal at least.
  Seal next_batch();
  void run(const std::stop_token& stop);
  /// False where it was told to stop before the batch was written.
  bool write(const std::vector<Change>& batch, const std::stop_token& stop);
  /// As events_.written, tried again for a second without memory.
  void tell_written() const;
  /// As events_.log, or nothing without memory.
  void tell_log(LogLine::Level level, const std::string& sentence) const;
  /// Until it succeeds, or nobody is left to hear it.
  template <class Tell>
  static void tell_surely(const std::stop_token& stop, Tell tell);
  /// The batch is durable.
  void note_written(std::size_t changes, std::size_t bytes);
  void watch(const std::stop_token& stop);
  void note_commit(Clock::duration took);
  /// Asks the place for its obstacle, and reports a change of it. Tried again without memory.
  void look(const std::stop_token& stop);
  /// A step of the backup that was asked for. True while there is more to copy.
  bool go_on_with_backup(const std::stop_token& stop);
  void end_backup(BackupStatus::State state, std::string sentence);

  const std::unique_ptr<StatePlace> place_;
  const Events events_;

  Seal filling_;  ///< Not sealed yet.
  std::uint64_t recorded_ = 0, recorded_bytes_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable_any
      changed_;  ///< There is a batch, or it was taken, or the end has come.
  std::condition_variable_any watched_;  ///< Only the end is told by it.
  std::deque<Seal> sealed_;
  std::size_t sealed_bytes_ = 0;
  bool ended_ = false;                              ///< The thread takes no further batch.
  std::optional<Clock::time_point> waits_since_;    ///< The first sealed change does, or the batch.
  std::optional<Clock::time_point> doubted_since_;  ///< The place may not be ours.
  bool hangs_ = false;
  Histogram commits_;
  BackupStatus backup_;
  bool backup_asked_ = false;        ///< The thread has yet to begin it.
  std::unique_ptr<Backup> copying_;  ///< Used by the thread alone.

  std::atomic<std::uint64_t> durable_ = 0, durable_bytes_ = 0;
  StatePlace::Obstacle obstacle_;      ///< Changed with the lock, by the thread alone.
  std::atomic<bool> blocked_ = false;  ///< There is an obstacle.
  std::jthread thread_;                ///< After the members that it uses, so that it ends first.
  std::jthread watch_;                 ///< Notices that the other thread hangs.
};

}  // namespace dlaunch::rendezvous
