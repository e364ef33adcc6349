#include "collectives/call/call.hpp"

#include <algorithm>

/// A call that goes to a device: how it waits for what no message tells of, and how it is compared
/// with the other ranks' calls, which nobody waits for.
namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::Fingerprint;
using transport::Kind;

/// Most calls on a device are over before a thread has gone to sleep and been woken.
constexpr auto spin_time = 100us;
/// For the cause of a loss that is known, and a little more.
constexpr auto loss_grace = 2s;

}  // namespace

void Call::watch_until(const std::function<bool()>& ready) {
  const auto spin_until = Clock::now() + spin_time;
  do {
    if (ready()) return;
  } while (Clock::now() < spin_until && !is_over());
  const auto lock = setting_.mesh.lock();
  wait_loop({.all = true}, ready, look_interval);
}

void Call::look() {
  const auto lock = setting_.mesh.lock();
  setting_.mesh.step(Clock::now());
  check_news(nullptr);
  for (const PeerLoss& loss : setting_.mesh.losses()) {
    if (is_orderly(loss) || setting_.group.rank_of(loss.rank) < 0) continue;
    const auto until = Clock::now() + loss_grace;
    return wait_loop({.all = true}, [&] { return Clock::now() >= until; });
  }
}

void Call::look_at_news() {
  const auto& news = setting_.mesh.control();
  if (is_over() || news.has_failures() || news.has_calls()) look();
}

/// In few messages: the first call's header is the message's, the others are its payload.
void Call::tell_device_calls(CallHistory& history) {
  const auto lock = setting_.mesh.lock();
  const auto untold = history.take_untold();
  if (size() < 2) return;
  const int next = setting_.group.world_rank((rank() + 1) % size());
  constexpr std::size_t at_once = 1 + transport::control_bytes_max / sizeof(transport::Header);
  for (std::size_t i = 0; i < untold.collectives.size(); i += at_once) {
    const std::size_t end = std::min(untold.collectives.size(), i + at_once);
    Bytes others;
    for (std::size_t j = i + 1; j < end; ++j) {
      const auto header = make_header(Kind::call, setting_.group.id, untold.collectives[j], 0);
      const auto* bytes = reinterpret_cast<const std::byte*>(&header);
      others.insert(others.end(), bytes, bytes + sizeof header);
    }
    const auto first =
        make_header(Kind::call, setting_.group.id, untold.collectives[i], others.size());
    setting_.mesh.post_control(next, first, std::move(others));
  }
  for (const auto& [peer, message] : untold.messages) {
    setting_.mesh.post_control(peer, make_header(Kind::call, setting_.group.id, message, 0), {});
  }
}

void Call::check_device_messages() {
  auto& news = setting_.mesh.control();
  while (const auto message = news.next_message(setting_.group.id)) {
    setting_.history->take_message(message->from, message->call);
  }
  const auto unlike = setting_.history->unlike();
  if (!unlike) return;
  throw_disagreement(to_string(*unlike, setting_.group.rank_of(unlike->from), rank()),
                     disagreed_with(unlike->from, std::nullopt));
}

void Call::post_call(int world_rank) {
  const auto header = make_header(Kind::call, setting_.group.id, fingerprint_, 0);
  setting_.mesh.post_control(world_rank, header, {});
}

void Call::check_calls() {
  auto& news = setting_.mesh.control();
  while (const auto theirs = news.next_call(setting_.group.id, fingerprint_.sequence)) {
    const auto mine = call_made(theirs->call.sequence);
    if (mine && *mine != theirs->call) {
      throw_disagreement(disagreement(theirs->call, theirs->from),
                         disagreed_with(theirs->from, theirs->call), theirs->call.sequence);
    }
  }
}

/// Another rank gave wrong arguments to a call that is on this rank's stream, and cannot end there.
const transport::FailureNotice* Call::wrong_on_device() const {
  if (setting_.history == nullptr) return nullptr;
  const auto* notice = setting_.mesh.control().wrong_arguments(setting_.group.id);
  if (notice == nullptr) return nullptr;
  const auto mine = setting_.history->find(notice->sequence);
  return mine && mine->on_device() ? notice : nullptr;
}

}  // namespace dlaunch
