#include "collectives/device/device_calls.hpp"

#include "collectives/algorithms/algorithms.hpp"

#include <string>
#include <utility>
#include <vector>

namespace dlaunch {

using device::Answer;

namespace {

using namespace std::chrono_literals;

/// How often the thread looks.
constexpr auto look_interval = 50ms;
/// How long to wait for this rank's agent to say who died: a failing library may know of a death
/// before it.
constexpr auto cause_grace = 1s;
/// How long calls under way may take to end in NCCL's orderly way before they are aborted. NCCL
/// takes half a second to let a thread out of a call that blocks.
constexpr auto revoke_limit = 2s;
constexpr auto revoke_interval = 1ms;
/// How long NCCL may take to destroy a communicator.
constexpr auto end_limit = 2s;

/// A rank's message to the others when they bring the library up.
struct Introduction {
  device::Id id{};  ///< Rank 0's.
  std::int32_t version = 0;
};

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

device::Id agree_on_id(Call& call, device::Library& library) {
  std::vector<Introduction> all(static_cast<std::size_t>(call.size()));
  Introduction& mine = all[static_cast<std::size_t>(call.rank())];
  mine.version = library.version();
  if (call.rank() == 0) throw_if_failed(call, library.make_id(mine.id));
  algorithms::all_gather(call.ranks(), {reinterpret_cast<std::byte*>(all.data()),
                                        {call.size(), sizeof(Introduction)}});
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].version == all[0].version) continue;
    throw Error(Errc::version, call.label() + ": rank 0 has NCCL " + version_text(all[0].version) +
                                   " and rank " + std::to_string(rank) + " has NCCL " +
                                   version_text(all[rank].version) +
                                   ": all ranks need the same one");
  }
  return all[0].id;
}

/// Waits until the group has done its last operation.
void settle(Call& call, device::Group& group) {
  Answer answer;
  call.watch_until([&] {
    answer = group.progress();
    return answer.now != Answer::Now::pending;
  });
  throw_if_failed(call, answer);
}

}  // namespace

void throw_if_failed(Call& call, const Answer& answer) {
  if (!answer.has_failed()) return;
  if (answer.code == Errc::internal || answer.code == Errc::peer_lost ||
      answer.code == Errc::aborted) {
    const auto until = Clock::now() + cause_grace;
    call.watch_until([&] { return Clock::now() >= until; });
  }
  throw Error(answer.code,
              call.label() + " on rank " + std::to_string(call.rank()) + ": " + answer.why);
}

class DeviceCalls::Entered {
 public:
  Entered(DeviceCalls& calls, Call& call) : calls_(calls) {
    const std::lock_guard lock(calls_.mutex_);
    calls_.entered_ = &call;
    calls_.has_been_seen_ = false;
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  ~Entered() { static_cast<void>(end()); }

  /// Throws why the call has to end, if the other thread has found that.
  void leave() {
    if (const auto why = end()) std::rethrow_exception(why);
  }

 private:
  /// Waits until the other thread has left the call.
  std::exception_ptr end() {
    std::unique_lock lock(calls_.mutex_);
    calls_.entered_ = nullptr;
    calls_.changed_.wait(lock, [this] { return !calls_.is_waited_for_; });
    return std::exchange(calls_.ended_by_, nullptr);
  }

  DeviceCalls& calls_;
};

DeviceCalls::DeviceCalls(Call& call, device::Library& library, int device)
    : library_(library), device_(device) {
  const device::Id id = agree_on_id(call, library);
  throw_if_failed(call, library.join(id, device, call.rank(), call.size(), group_));
  settle(call, *group_);
}

DeviceCalls::DeviceCalls(device::Library& library, int device, std::unique_ptr<device::Group> group)
    : library_(library), device_(device), group_(std::move(group)) {}

device::Mark DeviceCalls::enqueue(Call& call, const device::Plan& plan, void* stream) {
  device::Mark mark;
  mark.spare = std::move(last_);
  Entered entered(*this, call);
  const Answer answer = group_->enqueue(plan, stream, mark);
  entered.leave();
  throw_if_failed(call, answer);
  if (answer.now == Answer::Now::pending) {
    settle(call, *group_);
    throw_if_failed(call, group_->make_mark(stream, mark));
  }
  last_ = mark.captured ? std::move(mark.spare) : mark.event;
  return mark;
}

Answer DeviceCalls::wait(Call& call, device::Event& mark) {
  Answer answer;
  call.watch_until([&] {
    answer = mark.query();
    if (answer.now != Answer::Now::pending) return true;
    const Answer background = group_->check();
    if (background.has_failed()) answer = background;
    return background.has_failed();
  });
  return answer;
}

void DeviceCalls::check(Call& call) { throw_if_failed(call, group_->check()); }

std::unique_ptr<device::Group> DeviceCalls::split(Call& call, int color, int key) {
  if (last_) throw_if_failed(call, wait(call, *last_));
  std::unique_ptr<device::Group> made;
  throw_if_failed(call, group_->split(color, key, made));
  settle(call, *group_);
  if (made) settle(call, *made);
  return made;
}

void* DeviceCalls::byte() {
  if (byte_ != nullptr) return byte_;
  const Answer answer = library_.allocate(device_, 1, byte_);
  if (answer.has_failed()) throw Error(answer.code, "barrier on a CUDA stream: " + answer.why);
  return byte_;
}

bool DeviceCalls::is_quiet() noexcept {
  if (!last_) return true;
  try {
    return last_->query().is_done();
  } catch (const std::exception&) {
    return false;  // There was no memory for the reason of the failure.
  }
}

bool DeviceCalls::can_shrink() noexcept {
  const std::lock_guard lock(mutex_);
  return group_->can_shrink() && (!given_up_ || group_->can_revoke());
}

/// Shrinks the group; the thread neither looks nor ends anything meanwhile.
std::unique_ptr<device::Group> DeviceCalls::shrink(Call& call, std::span<const int> gone) {
  call.watch_until([this] {
    const std::lock_guard lock(mutex_);
    if (given_up_ && !ended_) return false;
    return is_taken_ = true;
  });
  std::unique_ptr<device::Group> made;
  Answer answer;
  if (gone.empty()) {
    if (!ended_ && last_) answer = wait(call, *last_);
    if (!answer.has_failed()) answer = group_->split(0, call.rank(), made);
  } else {
    answer = group_->shrink(gone, ended_ || is_quiet(), made);
  }
  const auto follow = [&](device::Group& group) {
    if (answer.has_failed()) return;
    call.watch_until([&] {
      answer = group.progress();
      return answer.now != Answer::Now::pending;
    });
  };
  follow(*group_);
  if (made) follow(*made);
  const std::lock_guard lock(mutex_);
  is_taken_ = false;
  return answer.is_done() ? std::move(made) : nullptr;
}

void DeviceCalls::watch(std::function<bool()> look) {
  look_ = std::move(look);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

/// The thread: looks, and after give_up() ends NCCL's work, which may take a while and must not
/// hold up the caller.
void DeviceCalls::run(const std::stop_token& stop) {
  for (bool looking = true;;) {
    Call* entered = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop, look_interval, [this] { return given_up_; });
      if (stop.stop_requested()) return;  // end() ends the work.
      if (is_taken_) continue;
      if (given_up_) break;
      // An undisturbed call is left alone.
      if (entered_ != nullptr && std::exchange(has_been_seen_, true)) {
        entered = entered_;
        is_waited_for_ = true;
      }
    }
    if (entered != nullptr) {
      wait_for_entered(*entered);
    } else if (looking) {
      looking = look_();
    }
  }
  end_work(stop);
}

/// Waits on behalf of the thread that is inside the library; if the call has to end, that thread
/// comes out when the work is ended.
void DeviceCalls::wait_for_entered(Call& call) {
  std::exception_ptr why;
  try {
    call.watch_until([this] {
      const std::lock_guard lock(mutex_);
      return entered_ == nullptr || given_up_;
    });
  } catch (...) {
    why = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  given_up_ = given_up_ || why;
  ended_by_ = std::move(why);
  is_waited_for_ = false;
  changed_.notify_all();
}

bool DeviceCalls::revoke(const std::stop_token& stop) {
  if (stop.stop_requested() || !group_->can_revoke()) return false;
  const auto until = Clock::now() + revoke_limit;
  Answer answer = group_->revoke();
  while (answer.now == Answer::Now::pending && Clock::now() < until && !stop.stop_requested()) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, revoke_interval, [] { return false; });
    answer = group_->progress();
  }
  return answer.is_done();
}

/// Ends the work, by a revoke if possible: a revoked group can still be shrunk, an aborted one
/// cannot.
void DeviceCalls::end_work(const std::stop_token& stop) {
  bool ended = false;
  try {
    ended = revoke(stop);
  } catch (const std::exception&) {
    // There was no memory for the reason of the failure.
  }
  if (!ended) group_->abort();
  const std::lock_guard lock(mutex_);
  ended_ = true;
}

void DeviceCalls::give_up() noexcept {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

/// Ends the group. If a graph still has calls of it, NCCL cannot end it yet, but the program goes
/// on.
void DeviceCalls::end(bool in_order) noexcept {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  if (!group_) return;
  group_->end(in_order && !given_up_, end_limit);
  group_.reset();
  if (byte_ != nullptr) library_.free(device_, byte_);
}

}  // namespace dlaunch
