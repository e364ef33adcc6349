#include "collectives/call/call.hpp"
#include "collectives/transport/wait_chain.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

/// Ranks that wait for each other in different calls would do so until their timeout: they find
/// out.
namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::Kind;
using transport::Receive;
using transport::WaitChain;
using Stage = WaitChain::Stage;

/// Between two looks at the chains that come to a rank whose wait is no link.
constexpr auto look_pause = 150ms;
/// A rank hands on one of the chains that come to it so often; the others would go the same way.
constexpr auto hand_on_interval = 20ms;

bool is_only_thread() {
  std::error_code failed;
  const std::filesystem::directory_iterator threads("/proc/self/task", failed);
  return !failed && std::distance(begin(threads), end(threads)) == 1;
}

}  // namespace

/// For data of one rank of which nothing has come, and by no other thread anything goes on.
bool Call::is_blocked(const Waiting& waiting) const {
  auto& mesh = setting_.mesh;
  if (waiting.any() || waiting.all || waiting.to_receive().size() != 1) return false;
  const int from = waiting.to_receive().front();
  if (from == mesh.rank() || mesh.control().has_started() || !mesh.control().is_alone())
    return false;
  if (waiting.in_shm_group || waiting.in_memory) return true;
  return waiting.receive != nullptr && waiting.receive->state == Receive::State::waiting &&
         !mesh.inbox().is_receiving(from) && !mesh.inbox().is_held(from);
}

void Call::post_chain(int to, const WaitChain& chain) {
  auto payload = encode(chain);
  if (!payload) return;  // So many ranks: the launcher tells of them, after a while.
  const auto header = make_header(Kind::chain, setting_.group.id, fingerprint_, payload->size());
  setting_.mesh.post_control(to, header, std::move(*payload));
}

void Call::check_chains(const Waiting& waiting, TimePoint now) {
  Chains& chains = waits().chains;
  auto& news = setting_.mesh.control();
  const bool blocked = is_blocked(waiting);
  while (const auto chain = news.next_chain()) {
    if (blocked) take_chain(*chain, waiting.to_receive().front(), now);
  }
  if (blocked && now >= chains.next_own) {
    chains.pause *= 2;
    chains.next_own = now + chains.pause;
    post_chain(waiting.to_receive().front(), {Stage::found, {own_link()}});
  }
  waits().look_again = std::min(waits().look_again, blocked ? chains.next_own : now + look_pause);
}

transport::WaitLink Call::own_link() const {
  return {setting_.mesh.rank(), waits().chains.turn, setting_.group.id, fingerprint_.sequence,
          full_label() + where()};
}

/// Nobody in it is more to blame than the others.
void Call::throw_deadlock(const WaitChain& chain) {
  Claim claim{.fault = Fault::disagreed};
  for (const auto& link : chain.links) {
    if (claim.ranks.size() < Claim::ranks_max) claim.ranks.push_back(link.rank);
  }
  throw CallError(Errc::mismatch, to_string(chain), std::move(claim));
}

/// One that came from a rank that waits for this one; a ring, from the rank that this one waits
/// for, behind all that it had sent.
void Call::take_chain(WaitChain chain, int next, TimePoint now) {
  Chains& chains = waits().chains;
  const int me = setting_.mesh.rank();
  const std::size_t place = chain.place_of(me), count = chain.links.size();
  const bool is_in = place < count;
  // The chain belongs to another wait of this rank.
  if (is_in && chain.links[place].turn != chains.turn) return;
  if (chain.stage == Stage::certain) {
    if (is_in) throw_deadlock(chain);
    return;
  }
  if (chain.stage == Stage::again) {
    if (!is_in || chain.links[(place + 1) % count].rank != next) return;
    if (place != 0) return post_chain(chain.links[place - 1].rank, chain);
    chain.stage = Stage::certain;
    for (const auto& link : chain.links) {
      if (link.rank != me) post_chain(link.rank, chain);
    }
    throw_deadlock(chain);
  }
  // Another thread may be about to do what is waited for.
  if (!is_only_thread()) return;
  if (!is_in) {
    if (now - chains.handed_on < hand_on_interval) return;
    chains.handed_on = now;
    chain.links.push_back(own_link());
    return post_chain(next, chain);
  }
  chain.links.erase(chain.links.begin(), chain.links.begin() + static_cast<std::ptrdiff_t>(place));
  if (chain.is_one_call()) return;
  chain.stage = Stage::again;
  post_chain(chain.links.back().rank, chain);
}

}  // namespace dlaunch
