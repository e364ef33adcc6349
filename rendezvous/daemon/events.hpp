#pragma once

#include "rendezvous/http/page.hpp"
#include "rendezvous/service/service.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace dlaunch::rendezvous {

/// An event as one line of JSON, `time_ms` since 1970.
std::string event_json(const LogLine& line, std::int64_t time_ms);

/// The last events as an event stream for readers that come and go. Each has an id, by which a
/// reader goes on where it was. Any thread.
class EventRing {
 public:
  static constexpr std::size_t events_max = 1024, bytes_max = 1u << 20;

  /// `name` begins the ids, so that an earlier daemon's ids are recognised.
  explicit EventRing(std::string name) : name_(std::move(name)) {}

  /// One line of text.
  void add(std::string data);

  /// The number of the event that follows the one with this id; for an unknown id, or none, that of
  /// the oldest event left.
  std::uint64_t after(std::string_view last_event_id) const;

  struct Piece {
    std::string text;  ///< Empty: there is nothing yet.
    std::uint64_t next = 0;
  };
  /// Events from this number on, 64 KiB of them at most. If some are no longer there it begins with
  /// an event `gap`, whose data is how many.
  Piece read(std::uint64_t next) const;

 private:
  const std::string name_;
  mutable std::mutex mutex_;
  std::deque<std::string> events_;
  std::uint64_t first_ = 1;  ///< The number of the oldest event.
  std::size_t bytes_ = 0;
};

/// A reader's place in the ring.
class EventFeed final : public Feed {
 public:
  EventFeed(std::shared_ptr<const EventRing> ring, std::string_view last_event_id)
      : ring_(std::move(ring)), next_(ring_->after(last_event_id)) {}
  std::string next() override;

 private:
  std::shared_ptr<const EventRing> ring_;
  std::uint64_t next_;
  bool greeted_ = false;
};

}  // namespace dlaunch::rendezvous
