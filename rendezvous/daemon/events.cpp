#include "rendezvous/daemon/events.hpp"

#include "rendezvous/daemon/log.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace dlaunch::rendezvous {

namespace {

/// The longest sentence of an event; some would name every node.
constexpr std::size_t sentence_bytes_max = 2048;
constexpr std::size_t piece_bytes_max = 64u << 10;
/// Tells readers how many ms to wait before they reconnect.
constexpr std::string_view greeting = "retry: 2000\n\n";

}  // namespace

std::string event_json(const LogLine& line, std::int64_t time_ms) {
  std::string sentence = line.sentence.substr(0, sentence_bytes_max);
  if (sentence.size() < line.sentence.size()) sentence += "...";
  const nlohmann::ordered_json json = {
      {"time_ms", time_ms},           {"job", line.job},     {"event", name_of(line.event)},
      {"level", name_of(line.level)}, {"epoch", line.epoch}, {"attempt", line.attempt},
      {"sentence", sentence}};
  // Names come from outside and need not be UTF-8.
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void EventRing::add(std::string data) {
  const std::lock_guard lock(mutex_);
  const std::size_t bytes = data.size();
  events_.push_back(std::move(data));
  bytes_ += bytes;
  while (events_.size() > events_max || bytes_ > bytes_max) {
    bytes_ -= events_.front().size();
    events_.pop_front();
    ++first_;
  }
}

std::uint64_t EventRing::after(std::string_view last_event_id) const {
  const std::lock_guard lock(mutex_);
  if (!last_event_id.starts_with(name_ + "-")) return first_;
  last_event_id.remove_prefix(name_.size() + 1);
  std::uint64_t number = 0;
  const char* const end = last_event_id.data() + last_event_id.size();
  const auto [stop, error] = std::from_chars(last_event_id.data(), end, number);
  const bool ours = error == std::errc{} && stop == end && number < first_ + events_.size();
  return ours ? number + 1 : first_;
}

EventRing::Piece EventRing::read(std::uint64_t next) const {
  const std::lock_guard lock(mutex_);
  Piece piece{{}, std::max(next, first_)};
  if (next < first_) piece.text = fmt::format("event: gap\ndata: {}\n\n", first_ - next);
  for (; piece.next < first_ + events_.size() && piece.text.size() < piece_bytes_max;
       ++piece.next) {
    piece.text += fmt::format("id: {}-{}\ndata: {}\n\n", name_, piece.next,
                              events_[static_cast<std::size_t>(piece.next - first_)]);
  }
  return piece;
}

std::string EventFeed::next() {
  auto [text, next] = ring_->read(next_);
  next_ = next;
  if (!std::exchange(greeted_, true)) text.insert(0, greeting);
  return text;
}

}  // namespace dlaunch::rendezvous
