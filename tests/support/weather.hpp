#pragma once

#include "collectives/transport/message/poller.hpp"
#include "collectives/transport/message/send_queue.hpp"
#include "collectives/transport/message/transport.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

/// A transport between ranks that are threads, on which it is as windy as a test wants: pieces of
/// messages are late, so that those of several ranks come in any order (those of one never do),
/// ways are cut, and ranks die. What happens is drawn from a seed.
namespace dlaunch::testing {

/// Ends the thread of a rank as a signal would.
struct Struck : std::runtime_error {
  Struck() : std::runtime_error("struck") {}
};

/// What happens to one world.
struct Weather {
  std::uint64_t seed = 0;
  int late_max = 0;      ///< Looks of the receiver that a piece may be late.
  int cut_from = -1;     ///< The way between these two ends,
  int cut_to = -1;       ///< in that direction,
  int dies = -1;         ///< or this rank,
  int after_pieces = 0;  ///< when it has sent so many pieces.
};

/// The air between the ranks. For any threads.
class Sky {
 public:
  static constexpr const char* cut_reason = "connection reset by the weather";
  static constexpr std::size_t piece_bytes_max = 1500;
  static constexpr std::size_t pieces_max = 8;  ///< That a way holds.

  Sky(int size, const Weather& weather)
      : size_(size), weather_(weather), random_(weather.seed), ways_(count(size)) {
    for (int rank = 0; rank < size; ++rank) {
      bells_.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
  }

  int size() const { return size_; }
  int bell(int rank) const { return bells_[static_cast<std::size_t>(rank)].get(); }
  /// Throws Struck where that is the weather.
  std::size_t send(int from, int to, BytesView bytes) {
    const std::lock_guard lock(mutex_);
    strike(from, to);
    Way& way = way_of(from, to);
    if (way.cut || way.pieces.size() >= pieces_max) return 0;
    way.begun = true;
    const std::size_t part = 1 + draw(std::min(bytes.size(), piece_bytes_max) - 1);
    way.pieces.push_back({Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(part)),
                          draw(static_cast<std::size_t>(weather_.late_max))});
    ring(to);
    return part;
  }
  /// Appends what has come. Whether anything has, or is to come with a later look.
  bool receive(int from, int to, Bytes& into) {
    const std::lock_guard lock(mutex_);
    Way& way = way_of(from, to);
    if (way.pieces.empty()) return false;
    if (way.pieces.front().late > 0) {
      --way.pieces.front().late;
      return true;
    }
    const Bytes& piece = way.pieces.front().bytes;
    into.insert(into.end(), piece.begin(), piece.end());
    way.pieces.pop_front();
    ring(from);  // There is room.
    return true;
  }
  bool has_begun(int from, int to) {
    const std::lock_guard lock(mutex_);
    return way_of(from, to).begun;
  }
  bool is_cut(int from, int to) {
    const std::lock_guard lock(mutex_);
    return way_of(from, to).cut;
  }
  /// Nothing is to come any more.
  bool is_over(int from, int to) {
    const std::lock_guard lock(mutex_);
    const Way& way = way_of(from, to);
    return way.cut && way.pieces.empty();
  }
  /// Nothing more is sent; what was can still be received.
  void close(int from, int to) {
    const std::lock_guard lock(mutex_);
    way_of(from, to).cut = true;
    ring(to);
  }
  /// All ways of a rank that has gone.
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    cut_all(rank);
  }

 private:
  struct Piece {
    Bytes bytes;
    std::size_t late = 0;
  };
  struct Way {
    std::deque<Piece> pieces;
    bool begun = false;
    bool cut = false;
  };

  static std::size_t count(int size) { return static_cast<std::size_t>(size * size); }
  Way& way_of(int from, int to) { return ways_[static_cast<std::size_t>(from * size_ + to)]; }
  std::size_t draw(std::size_t max) {
    return std::uniform_int_distribution<std::size_t>(0, max)(random_);
  }
  void ring(int rank) const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(bell(rank), &one, sizeof one);
  }
  void strike(int from, int to) {
    if (from == weather_.dies && sent_++ >= weather_.after_pieces) {
      cut_all(from);
      throw Struck();
    }
    if (from != weather_.cut_from || to != weather_.cut_to) return;
    if (sent_++ < weather_.after_pieces) return;
    Way& way = way_of(from, to);
    way.begun = way.cut = true;
    way.pieces.clear();  // As with a reset, what was under way is lost.
    ring(to);
  }
  void cut_all(int rank) {
    for (int other = 0; other < size_; ++other) {
      way_of(rank, other).cut = way_of(other, rank).cut = true;
      ring(other);
    }
  }

  const int size_;
  const Weather weather_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::vector<Way> ways_;
  std::vector<unique_fd> bells_;
  int sent_ = 0;  ///< By the one that dies, or on the way that is cut.
};

class WeatherSender final : public transport::SendingEnd {
 public:
  WeatherSender(Sky& sky, int from, int to) : sky_(sky), from_(from), to_(to) {}
  WeatherSender(const WeatherSender&) = delete;
  WeatherSender& operator=(const WeatherSender&) = delete;
  ~WeatherSender() override { sky_.close(from_, to_); }

  bool write(const transport::Header&, BytesView) override { return false; }
  bool write_some(const transport::Header& header, BytesView payload, std::size_t& sent) override {
    const std::size_t before = sent, total = sizeof header + payload.size();
    const BytesView head(reinterpret_cast<const std::byte*>(&header), sizeof header);
    while (sent < total) {
      const bool in_head = sent < sizeof header;
      const std::size_t part = sky_.send(
          from_, to_, in_head ? head.subspan(sent) : payload.subspan(sent - sizeof header));
      if (part == 0) break;
      sent += part;
    }
    return sent != before;
  }
  const char* end() const noexcept override {
    return sky_.is_cut(from_, to_) ? Sky::cut_reason : nullptr;
  }

 private:
  Sky& sky_;
  const int from_, to_;
};

class WeatherReceiver final : public transport::ReceivingEnd {
 public:
  WeatherReceiver(Sky& sky, int from, int to) : sky_(sky), from_(from), to_(to) {}

  bool pump(transport::Inbox& inbox, const transport::OnControl& on_control) override {
    if (ended_) return false;
    const bool feeds = feed(inbox, on_control);
    const bool held = inbox.is_receiving(from_) && inbox.room(from_).empty();
    const bool came = !held && sky_.receive(from_, to_, came_);
    if (came) feed(inbox, on_control);
    if (!held && !came && sky_.is_over(from_, to_)) ended_ = true;
    return feeds || came || ended_;
  }
  bool take_soon(transport::Receive&, const transport::LookLimit&) override { return false; }
  bool is_worth_looking() const noexcept override { return false; }
  bool ended() const noexcept override { return ended_; }
  const std::string& reason() const noexcept override { return reason_; }
  bool has_left_something() const noexcept override { return !ended_; }

 private:
  bool feed(transport::Inbox& inbox, const transport::OnControl& on_control) {
    std::size_t used = 0;
    for (;;) {
      const BytesView rest = BytesView(came_).subspan(used);
      if (inbox.is_receiving(from_)) {
        const auto room = inbox.room(from_);
        const std::size_t part = std::min(room.size(), rest.size());
        if (part == 0) {
          if (inbox.is_receiving(from_)) break;
          continue;
        }
        std::memcpy(room.data(), rest.data(), part);
        inbox.advance(from_, part);
        used += part;
        continue;
      }
      transport::Header header;
      if (rest.size() < sizeof header) break;
      std::memcpy(&header, rest.data(), sizeof header);
      const bool is_data = header.kind == transport::Kind::collective;
      if (!is_data && rest.size() < sizeof header + header.bytes) break;
      used += sizeof header;
      if (is_data) {
        inbox.begin(from_, header);
      } else {
        on_control(from_, header, rest.subspan(sizeof header, header.bytes));
        used += header.bytes;
      }
    }
    came_.erase(came_.begin(), came_.begin() + static_cast<std::ptrdiff_t>(used));
    return used > 0;
  }

  Sky& sky_;
  const int from_, to_;
  Bytes came_;  ///< And was not handed on.
  bool ended_ = false;
  const std::string reason_ = Sky::cut_reason;
};

class WeatherTransport final : public transport::Transport, public transport::Watched {
 public:
  WeatherTransport(Sky& sky, int rank, const transport::Surroundings& mesh)
      : sky_(sky), rank_(rank), mesh_(mesh), bell_(mesh.poller, sky.bell(rank), *this, EPOLLIN) {}
  WeatherTransport(const WeatherTransport&) = delete;
  WeatherTransport& operator=(const WeatherTransport&) = delete;
  ~WeatherTransport() override { sky_.leave(rank_); }

  Reach reach(int, const std::optional<transport::Location>&) const override { return Reach::yes; }
  bool is_in_memory() const noexcept override { return true; }
  std::unique_ptr<transport::SendingEnd> connect(transport::SendQueue& queue) override {
    queues_.push_back(&queue);
    return std::make_unique<WeatherSender>(sky_, rank_, queue.to());
  }
  bool progress() override {
    bool moved = false;
    for (int from = 0; from < sky_.size(); ++from) {
      if (from == rank_ || !sky_.has_begun(from, rank_) || mesh_.sources.has(from)) continue;
      mesh_.sources.add(from, receivers_.try_emplace(from, sky_, from, rank_).first->second);
    }
    for (auto& [from, receiver] : receivers_) {
      moved = receiver.pump(mesh_.inbox, mesh_.on_control) || moved;
    }
    for (transport::SendQueue* queue : queues_) {
      const bool was_broken = queue->is_broken();
      moved = queue->pump() || moved;
      queue->look_for_end();
      moved = moved || queue->is_broken() != was_broken;
    }
    return moved;
  }
  /// The bell stays rung until it was heard: nothing is missed.
  void lie_down() override {}
  void get_up() override {}
  Clock::time_point next_wake() const override { return Clock::time_point::max(); }
  void on_ready(std::uint32_t) override {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(sky_.bell(rank_), &count, sizeof count);
  }

 private:
  Sky& sky_;
  const int rank_;
  const transport::Surroundings mesh_;
  transport::Poller::Watch bell_;
  std::map<int, WeatherReceiver> receivers_;
  std::vector<transport::SendQueue*> queues_;
};

}  // namespace dlaunch::testing
