#include "collectives/call/wait/waiter.hpp"

#include "collectives/call/wait/chains.hpp"
#include "collectives/call/wait/news.hpp"
#include "runtime/base/deadline.hpp"

#include <algorithm>

namespace dlaunch {
namespace {

using namespace std::chrono_literals;

/// The wait after which a call is told to others; longer than any undisturbed call takes.
constexpr auto tell_after = 400ms;

}  // namespace

Waiter::Waiter(const CallFrame& frame)
    : frame_(frame),
      deadline_(deadline_after(frame.setting.timeout)),
      losses_(frame),
      strays_(frame) {}

std::optional<Ending> Waiter::wait(const Waiting& waiting, const Ready& ready,
                                   Clock::duration look_interval) {
  transport::Links& mesh = frame_.setting.mesh;
  bool tells = transport::is_counted(frame_.fingerprint.op) && !waiting.any() && !waiting.all;
  const auto long_at = Clock::now() + tell_after;
  const auto tell_at = tells ? long_at : Clock::time_point::max();
  const auto look_at_strays = frame_.nodes != nullptr ? Clock::time_point::min() : tell_at;
  ChainWatch chains(frame_, waiting, long_at, tell_after / 4);
  do {
    if (auto news = find_news(frame_, waiting.receive)) return news;
    NextLook next;
    if (auto lost = losses_.look(waiting, next)) return lost;
    const auto now = Clock::now();
    if (tells && now >= tell_at) {
      tell_call(waiting);
      tells = false;
    }
    if (tells) next.at_latest(tell_at);
    if (now >= look_at_strays) {
      if (auto stray = strays_.look(now, next)) return stray;
    }
    if (auto deadlock = chains.look(now, next)) return deadlock;
    if (now >= deadline_) return timed_out(waiting);
    if (look_interval < deadline_ - now) next.at_latest(now + look_interval);
    if (frame_.is_thread_wanted()) {
      mesh.step(now, false);
      // The thread is given back where memory is polled, which costs less.
      if (waiting.in_shm_group) return std::nullopt;
      if (!ready()) give_thread_back();
      continue;
    }
    look_past(waiting);
    const auto from = waiting.to_receive();
    if (from.size() == 1 && !waiting.has_spun && mesh.look_for(from.front())) continue;
    mesh.step(std::min(deadline_, next.when()), !waiting.has_spun);
  } while (!ready());
  return std::nullopt;
}

/// What it waits for may lie behind messages that nobody has received yet. So may the word that a
/// synchronous message was taken.
void Waiter::look_past(const Waiting& waiting) const {
  transport::Inbox& inbox = frame_.setting.mesh.inbox();
  const bool in_memory = waiting.in_shm_group || waiting.in_memory;
  inbox.look_past(in_memory ? std::span<const int>() : waiting.to_receive());
  if (waiting.outgoing != nullptr && waiting.outgoing->awaits_word()) {
    inbox.look_past(waiting.to_send());
  }
}

/// Gives the thread back; meanwhile other threads wait in the mesh, or the progress thread moves
/// started calls.
void Waiter::give_thread_back() const {
  transport::ProgressLock& progress = frame_.setting.mesh.progress_lock();
  progress.leave();
  progress.released([this] {
    frame_.setting.lent->give_back();
    return true;
  });
  progress.enter();
}

/// Tells the awaited ranks, after a long wait, in which collective this rank is. If each takes the
/// other for the root, nothing else would ever arrive.
void Waiter::tell_call(const Waiting& waiting) const {
  transport::Links& mesh = frame_.setting.mesh;
  const auto header =
      make_header(transport::Kind::call, frame_.setting.group.id, frame_.fingerprint, 0);
  for (const int rank : waiting.to_receive()) {
    if (rank != mesh.rank()) mesh.post_control(rank, header, {});
  }
}

ending::TimedOut Waiter::timed_out(const Waiting& waiting) const {
  ending::TimedOut late{.for_device = waiting.all, .whom = waiting.whom()};
  if (!frame_.is_message() || waiting.any() || waiting.all) {
    late.asked = frame_.setting.group.others();
  } else {
    for (const auto ranks : {waiting.to_receive(), waiting.to_send()}) {
      late.asked.insert(late.asked.end(), ranks.begin(), ranks.end());
    }
    std::erase(late.asked, frame_.setting.mesh.rank());
  }
  return late;
}

}  // namespace dlaunch
