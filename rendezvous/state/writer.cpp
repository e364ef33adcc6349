#include "rendezvous/state/writer.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

using namespace std::chrono_literals;

/// A batch that holds more lets the loop wait until it is taken. Requests do not come so far, as
/// the server sets their jobs aside before; the ends of many leases may. Where the place takes
/// nothing, the loop does not wait: requests are refused then, and the ends of leases and sessions
/// are bounded by what there is of them.
constexpr std::size_t batch_bytes_max = 12u << 20;
/// What a change takes besides its key and value, at the most: pages of the log.
constexpr std::size_t change_bytes = 4u << 10;
constexpr auto pause = 100ms;
/// How often, and after which pause, the loop is told again where there was no memory to tell it.
constexpr int tells_max = 100;
constexpr auto tell_pause = 10ms;
/// A write that takes longer hangs. It is looked for so often.
constexpr auto hang_time = 3s;
constexpr auto watch_interval = 500ms;
constexpr const char* hang_text = "writing the state hangs: changes wait until it goes on";

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
  look({});
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  watch_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

Writer::~Writer() {
  try {
    const std::lock_guard lock(mutex_);
    hand_over();
  } catch (const std::exception&) {  // There is no memory for it; nobody was told of it either.
  }
  thread_.request_stop();
  thread_.join();
}

void Writer::append(Change change) {
  const std::size_t bytes = size_of(change);
  filling_.changes.push_back(std::move(change));
  filling_.bytes += bytes;
  recorded_bytes_ += bytes;
  ++recorded_;
}

void Writer::seal() {
  if (filling_.changes.empty()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return ended_ || blocked_ || hangs_ || sealed_bytes_ < batch_bytes_max; });
  hand_over();
  lock.unlock();
  changed_.notify_all();
}

void Writer::hand_over() {
  if (filling_.changes.empty()) return;
  std::swap(sealed_.emplace_back(), filling_);  // Where there is no memory, nothing is lost.
  sealed_bytes_ += sealed_.back().bytes;
  if (!waits_since_) waits_since_ = Clock::now();
}

Writer::Seal Writer::next_batch() {
  Seal batch;
  while (!sealed_.empty()) {
    auto& [changes, bytes] = sealed_.front();
    const std::size_t together = batch.changes.size() + changes.size();
    if (batch.changes.empty()) {
      batch.changes.swap(changes);
    } else {
      if (together > place_->changes_at_once()) break;
      try {
        batch.changes.insert(batch.changes.end(), std::make_move_iterator(changes.begin()),
                             std::make_move_iterator(changes.end()));
      } catch (const std::bad_alloc&) {  // The next batch takes them.
        break;
      }
    }
    sealed_bytes_ -= bytes;
    batch.bytes += bytes;
    sealed_.pop_front();
  }
  return batch;
}

bool Writer::await_durable(std::uint64_t changes, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return ended_ || durable() >= changes; });
  return durable() >= changes;
}

std::string Writer::refusal() const {
  if (!blocked_) return {};
  const std::lock_guard lock(mutex_);
  return obstacle_.why;
}

std::string Writer::lasting_refusal() const {
  const std::lock_guard lock(mutex_);
  return obstacle_.lasts ? obstacle_.why : "";
}

void Writer::run(const std::stop_token& stop) {
  auto tended = Clock::time_point::max();
  try {
    for (;;) {
      const auto due = place_->tend();
      look(stop);
      // A lead that was in doubt may be ours again.
      if (std::exchange(tended, due) != due) tell_written();
      const bool copies = go_on_with_backup(stop);
      Seal batch;
      {
        std::unique_lock lock(mutex_);
        const auto called = [&] { return copies || backup_asked_ || !sealed_.empty(); };
        if (due == Clock::time_point::max()) {
          changed_.wait(lock, stop, called);
        } else {
          changed_.wait_until(lock, stop, due, called);
        }
        if (sealed_.empty() && stop.stop_requested()) break;
        batch = next_batch();
      }
      changed_.notify_all();
      if (batch.changes.empty()) continue;
      const auto began = Clock::now();
      if (!write(batch.changes, stop)) break;
      note_commit(Clock::now() - began);
      note_written(batch.changes.size(), batch.bytes);
    }
  } catch (const StateLost& lost) {
    tell_surely(stop, [&] { events_.failed(lost.what()); });
  } catch (const std::exception& error) {  // For want of memory, say.
    tell_surely(stop, [&] {
      events_.failed(std::string("the state cannot be written: ") + error.what() +
                     "; dlaunchd stops, so that it promises nothing that is not kept");
    });
  }
  tell_surely(stop, [&] {
    if (copying_) end_backup(BackupStatus::State::failed, "dlaunchd stops");
  });
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void Writer::note_written(std::size_t changes, std::size_t bytes) {
  bool hung = false;
  {
    const std::lock_guard lock(mutex_);
    durable_.fetch_add(changes, std::memory_order_release);
    durable_bytes_.fetch_add(bytes, std::memory_order_release);
    waits_since_.reset();
    if (!sealed_.empty()) waits_since_ = Clock::now();
    hung = std::exchange(hangs_, false);
  }
  if (hung) tell_log(LogLine::Level::info, "the state is written again");
  changed_.notify_all();
  tell_written();
}

void Writer::tell_written() const {
  for (int tries = 0; tries < tells_max; ++tries) {
    try {
      return events_.written();
    } catch (const std::bad_alloc&) {  // Others may give some back.
      std::this_thread::sleep_for(tell_pause);
    }
  }
  events_.written();
}

void Writer::tell_log(LogLine::Level level, const std::string& sentence) const {
  try {
    events_.log(level, sentence);
  } catch (const std::bad_alloc&) {  // The figures tell.
  }
}

template <class Tell>
void Writer::tell_surely(const std::stop_token& stop, Tell tell) {
  do {
    try {
      return tell();
    } catch (const std::exception&) {
      std::this_thread::sleep_for(tell_pause);
    }
  } while (!stop.stop_requested());
}

bool Writer::write(const std::vector<Change>& batch, const std::stop_token& stop) {
  for (;;) {
    const auto wrote = place_->write(batch);
    look(stop);
    if (wrote == StatePlace::Wrote::all) return true;
    // The unfinished copy may take just the room that is missing.
    tell_surely(stop, [&] {
      if (copying_) {
        end_backup(BackupStatus::State::failed, "the state itself cannot be written now");
      }
    });
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, pause, [] { return false; });
    if (stop.stop_requested()) return false;
  }
}

void Writer::look(const std::stop_token& stop) {
  std::optional<StatePlace::Obstacle> now;
  tell_surely(stop, [&] { now = place_->obstacle(); });
  if (now && now->why != obstacle_.why) {
    if (now->why.empty()) {
      tell_log(LogLine::Level::info, obstacle_.over);
    } else {
      tell_log(LogLine::Level::error, now->why);
    }
    {
      const std::lock_guard lock(mutex_);
      obstacle_ = *std::move(now);
      blocked_ = !obstacle_.why.empty();
    }
    changed_.notify_all();
    tell_written();
  }
  const bool ours = place_->is_ours();
  const std::lock_guard lock(mutex_);
  if (ours) {
    doubted_since_.reset();
  } else if (!doubted_since_) {
    doubted_since_ = Clock::now();
  }
}

// ---- Writes that hang ----

/// Its own pace costs less than hearing of each batch.
void Writer::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    watched_.wait_for(lock, stop, watch_interval, [] { return false; });
    if (hangs_ || blocked_ || ended_ || !waits_since_) continue;
    if (Clock::now() - *waits_since_ < hang_time) continue;
    hangs_ = true;
    lock.unlock();
    changed_.notify_all();
    try {
      events_.log(LogLine::Level::error, hang_text);
      events_.written();
    } catch (const std::exception&) {  // There is no memory for it; trouble() tells.
    }
    lock.lock();
  }
}

std::string Writer::trouble() const {
  const std::lock_guard lock(mutex_);
  return obstacle_.why.empty() && hangs_ ? hang_text : obstacle_.why;
}

std::optional<Clock::time_point> Writer::held_since() const {
  const bool ours = place_->is_ours();
  const std::lock_guard lock(mutex_);
  if (ours) return waits_since_;
  const auto doubted = doubted_since_.value_or(Clock::now());
  return waits_since_ ? std::min(*waits_since_, doubted) : doubted;
}

// ---- How it does ----

void Writer::note_commit(Clock::duration took) {
  const std::lock_guard lock(mutex_);
  commits_.add(took);
}

StateFigures Writer::figures() const {
  const std::lock_guard lock(mutex_);
  return {commits_, blocked_ || hangs_, place_->lead()};
}

// ---- A backup, a step of it after each batch ----

std::string Writer::back_up(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    if (backup_.state == BackupStatus::State::under_way) {
      return "the backup " + in_quotes(backup_.name) + " is under way; one is made at a time";
    }
    backup_ = {BackupStatus::State::under_way, name, "it begins"};
    backup_asked_ = true;
  }
  changed_.notify_all();
  return {};
}

BackupStatus Writer::backup() const {
  const std::lock_guard lock(mutex_);
  return backup_;
}

bool Writer::go_on_with_backup(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const bool begins = std::exchange(backup_asked_, false);
  lock.unlock();
  if (!begins && !copying_) return false;
  try {
    if (begins) copying_ = place_->back_up(backup().name);
    const bool whole = copying_->step();
    const auto [copied, all] = copying_->size();
    if (whole) {
      end_backup(BackupStatus::State::saved,
                 "saved in " + in_quotes(copying_->path()) + ": " + std::to_string(all) + " bytes");
      return false;
    }
    std::string progress =
        std::to_string(copied) + " of " + std::to_string(all) + " bytes are copied";
    const std::lock_guard again(mutex_);
    backup_.sentence = std::move(progress);
  } catch (const std::exception& error) {  // Also for want of memory: the state is whole.
    tell_surely(stop, [&] { end_backup(BackupStatus::State::failed, error.what()); });
    return false;
  }
  return true;
}

void Writer::end_backup(BackupStatus::State state, std::string sentence) {
  copying_.reset();
  const bool saved = state == BackupStatus::State::saved;
  try {
    events_.log(saved ? LogLine::Level::info : LogLine::Level::error,
                "backup " + in_quotes(backup_.name) + (saved ? ": " : " failed: ") + sentence);
  } catch (const std::bad_alloc&) {  // backup() tells.
  }
  const std::lock_guard lock(mutex_);
  backup_.state = state;
  backup_.sentence = std::move(sentence);
}

}  // namespace dlaunch::rendezvous
