#include "rendezvous/state/writer.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

using namespace std::chrono_literals;

/// A batch that holds more lets the loop wait until it is taken.
constexpr std::size_t batch_bytes_max = 4u << 20;
/// What a change takes besides its key and value, at the most: pages of the log.
constexpr std::size_t change_bytes = 4u << 10;
constexpr auto pause = 100ms;

template <class... Fields>
std::size_t sizes(const Fields&... fields) {
  return change_bytes + (std::size_t{0} + ... + fields.size());
}

struct SizeOf {
  std::size_t operator()(const change::Stored& c) const { return sizes(c.key, c.value); }
  std::size_t operator()(const change::Pushed& c) const { return sizes(c.queue, c.value); }
  std::size_t operator()(const change::Answered& c) const { return sizes(c.payload); }
  std::size_t operator()(const change::Completed& c) const {
    return c.block ? sizes(c.name, *c.block) : sizes(c.name);
  }
  template <class Other>
  std::size_t operator()(const Other&) const {
    return change_bytes;
  }
};

std::size_t size_of(const Change& change) { return std::visit(SizeOf{}, change); }

}  // namespace

Writer::Writer(std::unique_ptr<StatePlace> place, Events events)
    : place_(std::move(place)), events_(std::move(events)) {
  look();
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Writer::~Writer() {
  {
    const std::lock_guard lock(mutex_);
    hand_over();
  }
  thread_.request_stop();
  thread_.join();
}

void Writer::append(Change change) {
  filling_.bytes += size_of(change);
  filling_.changes.push_back(std::move(change));
  ++recorded_;
}

void Writer::seal() {
  if (filling_.changes.empty()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || sealed_bytes_ < batch_bytes_max; });
  hand_over();
  lock.unlock();
  changed_.notify_all();
}

void Writer::hand_over() {
  if (filling_.changes.empty()) return;
  sealed_bytes_ += filling_.bytes;
  sealed_.push_back(std::exchange(filling_, {}));
}

std::vector<Change> Writer::next_batch() {
  std::vector<Change> batch;
  while (!sealed_.empty()) {
    auto& [changes, bytes] = sealed_.front();
    if (!batch.empty() && batch.size() + changes.size() > place_->changes_at_once()) break;
    sealed_bytes_ -= bytes;
    std::ranges::move(changes, std::back_inserter(batch));
    sealed_.pop_front();
  }
  return batch;
}

std::string Writer::refusal() const {
  if (!blocked_) return {};
  const std::lock_guard lock(mutex_);
  return obstacle_.why;
}

void Writer::run(const std::stop_token& stop) {
  auto tended = Clock::time_point::max();
  try {
    for (;;) {
      const auto due = place_->tend();
      look();
      // It may be ours again, where it was in doubt.
      if (std::exchange(tended, due) != due) events_.written();
      std::vector<Change> batch;
      {
        std::unique_lock lock(mutex_);
        const auto there_is_one = [&] { return !sealed_.empty(); };
        if (due == Clock::time_point::max()) {
          changed_.wait(lock, stop, there_is_one);
        } else {
          changed_.wait_until(lock, stop, due, there_is_one);
        }
        if (sealed_.empty() && stop.stop_requested()) break;
        batch = next_batch();
      }
      changed_.notify_all();
      if (batch.empty()) continue;
      if (!write(batch, stop)) break;
      durable_.fetch_add(batch.size(), std::memory_order_release);
      events_.written();
    }
  } catch (const StateLost& lost) {
    events_.failed(lost.what());
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

bool Writer::write(const std::vector<Change>& batch, const std::stop_token& stop) {
  for (;;) {
    const auto wrote = place_->write(batch);
    look();
    if (wrote == StatePlace::Wrote::all) return true;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, pause, [] { return false; });
    if (stop.stop_requested()) return false;
  }
}

void Writer::look() {
  auto now = place_->obstacle();
  if (now.why != obstacle_.why) {
    if (now.why.empty()) {
      events_.log(LogLine::Level::info, obstacle_.over);
    } else {
      events_.log(LogLine::Level::error, now.why);
    }
    const std::lock_guard lock(mutex_);
    obstacle_ = std::move(now);
    blocked_ = !obstacle_.why.empty();
  }
}

}  // namespace dlaunch::rendezvous
