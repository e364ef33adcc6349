#include "collectives/call/wait/chains.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::Kind;
using transport::Outgoing;
using transport::Receive;
using transport::WaitChain;
using Stage = WaitChain::Stage;

/// Between two looks at the chains that come to a rank whose wait is no link.
constexpr auto look_pause = 150ms;
/// How often a rank hands on one of the chains that come to it; the others would go the same way.
constexpr auto hand_on_interval = 20ms;

bool is_only_thread() {
  std::error_code failed;
  const std::filesystem::directory_iterator threads("/proc/self/task", failed);
  return !failed && std::distance(begin(threads), end(threads)) == 1;
}

}  // namespace

ChainWatch::ChainWatch(const CallFrame& frame, const Waiting& waiting, Clock::time_point from,
                       Clock::duration pause)
    : frame_(frame),
      waiting_(waiting),
      turn_(frame.setting.mesh.control().next_wait()),
      is_probe_(frame.fingerprint.op == transport::Op::probe),
      may_be_blocked_(waiting.in_shm_group || waiting.in_memory || waiting.receive != nullptr ||
                      is_probe_ || waits_to_be_taken()),
      from_(from),
      next_own_(from),
      pause_(pause) {}

/// Whether a synchronous message is all that this wait is for.
bool ChainWatch::waits_to_be_taken() const {
  return waiting_.outgoing != nullptr && waiting_.outgoing->awaits_word() &&
         waiting_.receive == nullptr;
}

/// The one rank that this one waits for; -1: several, or none.
int ChainWatch::whom() const {
  return waits_to_be_taken() ? waiting_.outgoing->to : waiting_.whom();
}

/// Whether this rank waits for one rank's data of which nothing has come, or for its word that it
/// has taken a message that has left, while no other thread makes progress.
bool ChainWatch::is_blocked() const {
  auto& mesh = frame_.setting.mesh;
  const bool is_sent = waits_to_be_taken();
  if (waiting_.any() || waiting_.all) return false;
  if (!is_sent && waiting_.to_receive().size() != 1) return false;
  const int from = whom();
  if (from == mesh.rank() || mesh.control().has_started() || !mesh.control().is_alone())
    return false;
  if (is_sent) return waiting_.outgoing->state == Outgoing::State::sent;
  if (waiting_.in_shm_group || waiting_.in_memory) return true;
  const bool nothing_has_come = is_probe_ || (waiting_.receive != nullptr &&
                                              waiting_.receive->state == Receive::State::waiting);
  return nothing_has_come && !mesh.inbox().is_receiving(from) && !mesh.inbox().is_held(from);
}

void ChainWatch::post(int to, const WaitChain& chain) const {
  auto payload = encode(chain);
  if (!payload) return;  // Too many ranks for a message: the launcher will report them.
  const auto header =
      make_header(Kind::chain, frame_.setting.group.id, frame_.fingerprint, payload->size());
  frame_.setting.mesh.post_control(to, header, std::move(*payload));
}

std::optional<Ending> ChainWatch::look(TimePoint now, NextLook& next) {
  if (!may_be_blocked_) return std::nullopt;
  if (now < from_) {
    next.at_latest(from_);
    return std::nullopt;
  }
  const bool blocked = is_blocked();
  while (const auto chain = frame_.setting.mesh.control().next_chain()) {
    if (!blocked) continue;
    if (auto deadlock = take(*chain, whom(), now)) return deadlock;
  }
  if (blocked && now >= next_own_) {
    pause_ *= 2;
    next_own_ = now + pause_;
    post(whom(), {Stage::found, {own_link()}});
  }
  next.at_latest(blocked ? next_own_ : now + look_pause);
  return std::nullopt;
}

transport::WaitLink ChainWatch::own_link() const {
  const CallContext call = frame_.context();
  return {frame_.setting.mesh.rank(), turn_, call.group.id, call.fingerprint.sequence,
          call.full_label() + call.where()};
}

/// Takes a chain. A growing one comes from a rank that waits for this one; a ring comes from the
/// rank that this one waits for, behind everything that it had sent.
std::optional<Ending> ChainWatch::take(WaitChain chain, int next, TimePoint now) {
  const int me = frame_.setting.mesh.rank();
  const std::size_t place = chain.place_of(me), count = chain.links.size();
  const bool is_in = place < count;
  // The chain belongs to another wait of this rank.
  if (is_in && chain.links[place].turn != turn_) return std::nullopt;
  if (chain.stage == Stage::certain) {
    if (!is_in) return std::nullopt;
    return ending::Deadlock{std::move(chain)};
  }
  if (chain.stage == Stage::again) {
    if (!is_in || chain.links[(place + 1) % count].rank != next) return std::nullopt;
    if (place != 0) {
      post(chain.links[place - 1].rank, chain);
      return std::nullopt;
    }
    chain.stage = Stage::certain;
    for (const auto& link : chain.links) {
      if (link.rank != me) post(link.rank, chain);
    }
    return ending::Deadlock{std::move(chain)};
  }
  // Another thread may be about to do the awaited thing.
  if (!is_only_thread()) return std::nullopt;
  if (!is_in) {
    if (now - handed_on_ < hand_on_interval) return std::nullopt;
    handed_on_ = now;
    chain.links.push_back(own_link());
    post(next, chain);
    return std::nullopt;
  }
  chain.links.erase(chain.links.begin(), chain.links.begin() + static_cast<std::ptrdiff_t>(place));
  if (chain.is_one_call()) return std::nullopt;
  chain.stage = Stage::again;
  post(chain.links.back().rank, chain);
  return std::nullopt;
}

}  // namespace dlaunch
