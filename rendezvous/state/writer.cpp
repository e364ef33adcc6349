#include "rendezvous/state/writer.hpp"

#include "runtime/base/phrases.hpp"

#include <chrono>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

using namespace std::chrono_literals;

/// A batch that holds more lets the loop wait until it is taken.
constexpr std::size_t batch_bytes_max = 4u << 20;
/// What a change takes besides its key and value, at the most: pages of the log.
constexpr std::size_t change_bytes = 4u << 10;
constexpr auto full_pause = 100ms;
constexpr auto room_pause = 500ms;

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

Writer::Writer(StateFile file, Events events)
    : file_(std::move(file)),
      reserve_(file_.path()),
      events_(std::move(events)),
      refusal_("no space left on device for " + file_.path() +
               ": nothing is changed until there is room") {
  if (!reserve_.take()) {
    full_ = true;
    events_.log(LogLine::Level::error, refusal_);
  }
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
  filling_bytes_ += size_of(change);
  filling_.push_back(std::move(change));
  ++recorded_;
}

void Writer::seal() {
  if (filling_.empty()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || sealed_bytes_ < batch_bytes_max; });
  hand_over();
  lock.unlock();
  changed_.notify_all();
}

void Writer::hand_over() {
  if (sealed_.empty()) {
    sealed_.swap(filling_);
  } else {
    sealed_.insert(sealed_.end(), std::make_move_iterator(filling_.begin()),
                   std::make_move_iterator(filling_.end()));
  }
  filling_.clear();
  sealed_bytes_ += std::exchange(filling_bytes_, 0);
  sealed_last_ = recorded_;
}

std::string Writer::refusal() const { return full_ ? refusal_ : std::string(); }

void Writer::run(const std::stop_token& stop) {
  for (;;) {
    std::vector<Change> batch;
    std::uint64_t last = 0;
    {
      std::unique_lock lock(mutex_);
      const auto there_is_one = [&] { return !sealed_.empty(); };
      if (full_) {
        changed_.wait_for(lock, stop, room_pause, there_is_one);
      } else {
        changed_.wait(lock, stop, there_is_one);
      }
      if (sealed_.empty() && stop.stop_requested()) break;
      batch.swap(sealed_);
      sealed_bytes_ = 0;
      last = sealed_last_;
    }
    changed_.notify_all();
    if (!batch.empty()) {
      if (!write(batch, stop)) break;
      durable_.store(last, std::memory_order_release);
      events_.written();
    }
    if (full_) look_for_room();
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

bool Writer::write(const std::vector<Change>& batch, const std::stop_token& stop) {
  try {
    while (file_.write(batch) == StateFile::Wrote::no_space) {
      if (!full_.exchange(true)) {
        reserve_.give_up();
        events_.log(LogLine::Level::error, refusal_);
        continue;  // There is room for this batch now.
      }
      reserve_.give_up();
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop, full_pause, [] { return false; });
      if (stop.stop_requested()) return false;
    }
    return true;
  } catch (const StateLost& lost) {
    events_.failed(lost.what());
    return false;
  }
}

void Writer::look_for_room() {
  if (!reserve_.take()) return;
  full_ = false;
  events_.log(LogLine::Level::info, "there is room again for " + file_.path());
}

}  // namespace dlaunch::rendezvous
