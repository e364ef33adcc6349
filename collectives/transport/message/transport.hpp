#pragma once

#include "collectives/transport/message/inbox.hpp"
#include "collectives/transport/message/location.hpp"
#include "collectives/transport/message/message.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

/// The interface of a way by which messages go between this rank and others. Implementations (tcp/,
/// shm/, a test's) move bytes; their users decide what a message is, who waits for it, and what an
/// end means for a call. Everything is called under the mesh's lock.
namespace dlaunch::transport {

class SendQueue;

/// Why nothing more comes from a rank, or goes to it.
inline constexpr const char* closed_text = "it closed the connection";
inline constexpr const char* left_text = "it destroyed its communicator";
inline constexpr const char* no_message_text = "it sent something that is no message of ours";

/// Takes messages that are not data.
using OnControl = std::function<void(int from, const Header& header, BytesView payload)>;

/// How long a receiving end may look for a message without sleeping.
class LookLimit {
 public:
  /// Whether a thread waits for the lock, so that looking has to stop.
  virtual bool is_over() const = 0;
  /// Whether looking may cost system calls, which keep nobody else waiting.
  virtual bool allows_system_calls() const = 0;

 protected:
  ~LookLimit() = default;
};

/// The sending end of a way to one rank. When it is destroyed, the receiving end is told, behind
/// all sent data, that nothing follows.
class SendingEnd {
 public:
  virtual ~SendingEnd() = default;
  /// Writes a whole message, if it can leave at once and without a system call; else nothing of it.
  virtual bool write(const Header& header, BytesView payload) = 0;
  /// Writes as much of the rest of a message as can leave now; `sent` counts header and payload
  /// together. Returns whether anything moved.
  virtual bool write_some(const Header& header, BytesView payload, std::size_t& sent) = 0;
  /// The bytes of a message that lie where the receiver copies them from, until it has; else 0.
  virtual std::size_t lent_bytes() const noexcept { return 0; }
  /// Why no more can be written: "it closed the connection"; null if more can be.
  virtual const char* end() const noexcept = 0;
};

/// The receiving end of a way from one rank.
class ReceivingEnd {
 public:
  virtual ~ReceivingEnd() = default;
  /// Whether it surely has nothing new: a quick look, which only a counter in memory allows.
  bool is_quiet() const noexcept {
    return counter_ != nullptr && (counter_->load(std::memory_order_relaxed) & ~mark_) == read_;
  }
  /// Reads and hands on what there is, without blocking. Returns whether anything moved.
  virtual bool pump(Inbox& inbox, const OnControl& on_control) = 0;
  /// Takes the next message if it is the one that is wanted, and is there as a whole soon; nobody
  /// else must be waiting for it. Returns whether it did.
  virtual bool take_soon(Receive& receive, const LookLimit& limit) = 0;
  /// Hands on the next message if it is there as a whole and a receive waits for it, without a
  /// system call. Returns whether it did.
  virtual bool hand_on_whole(Inbox& /*inbox*/) { return false; }
  /// Whether repeated calls of pump() find data sooner than sleeping does, at the cost of system
  /// calls.
  virtual bool is_worth_looking() const noexcept = 0;
  /// Whether the sender closed it, or sent impossible bytes; everything before that was taken in.
  virtual bool ended() const noexcept = 0;
  /// Why it ended.
  virtual const std::string& reason() const noexcept = 0;
  /// Whether data that the sender sent before its process ended may still come.
  virtual bool has_left_something() const noexcept = 0;

 protected:
  ReceivingEnd() = default;
  ReceivingEnd(const std::atomic<std::uint64_t>& counter, std::uint64_t mark)
      : counter_(&counter), mark_(mark) {}

  /// The reader has got so far in what its sender counts up.
  std::uint64_t read_ = 0;

 private:
  const std::atomic<std::uint64_t>* const counter_ = nullptr;
  const std::uint64_t mark_ = 0;  ///< The part of the counter that is no number.
};

/// The receiving ends that a mesh has: one for each rank from which something has come, or of which
/// it is known that nothing will.
class Sources {
 public:
  virtual bool has(int from) const = 0;
  /// Adds the end of a rank that has none. `end` is borrowed for the mesh's life.
  virtual void add(int from, ReceivingEnd& end) = 0;

 protected:
  ~Sources() = default;
};

class Poller;

/// The mesh's services to its transports; they outlive the transports.
struct Surroundings {
  Poller& poller;
  Inbox& inbox;
  const OnControl& on_control;
  Sources& sources;
};

/// A way to some of the ranks.
class Transport {
 public:
  virtual ~Transport() = default;

  enum class Reach { no, unknown, yes };
  /// Whether it leads to that rank, whose location may not be known yet.
  virtual Reach reach(int rank, const std::optional<Location>& location) const = 0;
  /// Whether it is in memory: looking costs no system call and no descriptor tells of data, so
  /// `progress` is called again and again before a rank sleeps; and connecting needs no store.
  virtual bool is_in_memory() const noexcept = 0;
  /// Makes the sending end to the queue's rank, once, if it leads there. `queue` is borrowed for
  /// the mesh's life; it is told when it can go on, and when the end has ended.
  virtual std::unique_ptr<SendingEnd> connect(SendQueue& queue) = 0;
  /// Moves data of which no descriptor tells, and does work that is due. Returns whether anything
  /// moved.
  virtual bool progress() = 0;
  /// How long another rank needs, at the most, for what it may be doing with this one's data just
  /// now: to sleep meanwhile would cost more than to stay awake.
  virtual Clock::duration under_way() const noexcept { return Clock::duration::zero(); }
  /// This rank sleeps between these two calls: data that comes meanwhile wakes it, through a
  /// descriptor. Data that came before is found by one more `progress`.
  virtual void lie_down() = 0;
  virtual void get_up() = 0;
  /// The latest time at which it wants `progress`.
  virtual Clock::time_point next_wake() const = 0;
};

}  // namespace dlaunch::transport
