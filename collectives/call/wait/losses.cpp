#include "collectives/call/wait/losses.hpp"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::FailureNotice;

/// How long to wait for the agent's word: a closed connection says that a peer is gone, the agent
/// says why.
constexpr auto cause_grace = 150ms;
/// The same for a rank on another node: that node may be gone with its agent, which others learn
/// when its connection has not come back for 2 s.
constexpr auto node_cause_grace = 3s;
/// How long earlier messages of a rank may take after the news of its end: its data, or why it gave
/// up.
constexpr auto delivery_grace = 20ms;
/// Without an agent: how long other ranks may take to say why a rank gave up. The one that says it
/// may have many to tell, and may lack a processor.
constexpr auto hearsay_grace = 500ms;
/// How long a call may go on after a rank that it does not wait for died: if all data is on its way
/// the call may still end well.
constexpr auto indirect_grace = 300ms;
/// How long the first connection of a rank that left in good order may take on a network that loses
/// packets.
constexpr auto connection_grace = 500ms;
/// How long a device may take after a rank has left, which may have done all its part.
constexpr auto device_grace = 1s;

}  // namespace

LossWatch::TimePoint LossWatch::noticed(int world_rank) {
  for (const auto& [rank, when] : noticed_) {
    if (rank == world_rank) return when;
  }
  noticed_.emplace_back(world_rank, Clock::now());
  return noticed_.back().second;
}

std::optional<Ending> LossWatch::look(const Waiting& waiting, NextLook& next) {
  if (waiting.all) {
    if (auto left = look_for_left(next)) return left;
  }
  if (!waiting.any()) {
    for (const int rank : waiting.to_receive()) {
      if (auto lost = look_at_source(rank, waiting, next)) return lost;
    }
  } else {
    // A receive from any rank fails only when no rank is left that could send.
    int gone = -1;
    for (const int rank : waiting.to_receive()) {
      if (rank == mesh_.rank()) continue;
      gone = mesh_.is_gone(rank) ? rank : -1;
      if (gone < 0) break;
    }
    if (gone >= 0) {
      if (auto lost = look_at(gone, mesh_.end_of(gone), next)) return lost;
    }
  }
  for (const int rank : waiting.to_send()) {
    const bool has_left = waiting.outgoing->state == transport::Outgoing::State::sent;
    auto lost =
        has_left ? look_at_source(rank, waiting, next) : look_at(rank, mesh_.break_of(rank), next);
    if (lost) return lost;
  }
  return look_for_lost(next);
}

/// Looks for lost ranks. Ranks that were given up with their node may still do their part in this
/// call, but later collectives, however quick, must miss them.
std::optional<Ending> LossWatch::look_for_lost(NextLook& next) {
  for (std::size_t i = 0; i < mesh_.losses().size(); ++i) {
    const PeerLoss& loss = mesh_.losses()[i];
    if (!frame_.is_lost_here(loss)) continue;
    const auto since = frame_.is_message() ? noticed(loss.rank) : mesh_.losses_heard()[i];
    const auto settled = since + indirect_grace;
    if (Clock::now() >= settled) return lost(loss.rank, loss.cause);
    next.at_latest(settled);
  }
  return std::nullopt;
}

/// Looks for ranks that can take no more part in the call, although nobody waits for them in
/// particular.
std::optional<Ending> LossWatch::look_for_left(NextLook& next) {
  std::optional<Ending> found;
  mesh_.visit_known_ranks([&](int rank) {
    const std::string* closed = rank == mesh_.rank() ? nullptr : mesh_.end_of(rank);
    if (found || closed == nullptr || frame_.setting.group.rank_of(rank) < 0) return;
    const auto settled = noticed(rank) + device_grace;
    if (Clock::now() >= settled) {
      found = lost(rank, *closed);
    } else {
      next.at_latest(settled);
    }
  });
  return found;
}

/// Why nothing more comes from this rank on this call's way; null if more may come. A rank that
/// left before it had the shm group cannot say so there.
const std::string* LossWatch::end_of(int world_rank, const Waiting& waiting) const {
  static const std::string left = transport::left_text;
  if (!waiting.in_shm_group) return mesh_.end_of(world_rank);
  const int rank = frame_.setting.group.rank_of(world_rank);
  const int member = frame_.shm != nullptr ? rank : frame_.nodes->layout().index_of(rank);
  return frame_.shm_here()->has_left(member) ? &left : mesh_.end_of(world_rank);
}

/// Looks at one rank that is waited for. A message that it sent before it left in good order may
/// still be on its way.
std::optional<Ending> LossWatch::look_at_source(int world_rank, const Waiting& waiting,
                                                NextLook& next) {
  const std::string* closed = end_of(world_rank, waiting);
  const PeerLoss* loss = mesh_.loss_of(world_rank);
  const bool may_come =
      closed == nullptr && loss != nullptr && loss->left && mesh_.has_left_something(world_rank);
  return may_come ? std::nullopt : look_at(world_rank, closed, next);
}

/// How long the cause of a rank's end, or its earlier messages, may take to come.
Clock::duration LossWatch::grace_for(int world_rank) const {
  const PeerLoss* loss = mesh_.loss_of(world_rank);
  const bool is_elsewhere = frame_.is_elsewhere(world_rank);
  const bool may_connect =
      loss != nullptr && loss->left && is_elsewhere && !mesh_.inbox().last_seen(world_rank);
  if (may_connect) return connection_grace;
  if (!mesh_.hears_of_losses()) return hearsay_grace;
  if (loss != nullptr) return delivery_grace;
  return is_elsewhere ? Clock::duration(node_cause_grace) : Clock::duration(cause_grace);
}

/// The ending once it is certain that nothing more comes from, or goes to, this rank, and the cause
/// is known or never will be.
std::optional<Ending> LossWatch::look_at(int world_rank, const std::string* closed,
                                         NextLook& next) {
  if (mesh_.loss_of(world_rank) == nullptr && closed == nullptr) return std::nullopt;
  const auto settled = noticed(world_rank) + grace_for(world_rank);
  const bool is_settled = Clock::now() >= settled;
  // The others may have left because they gave up in a call that is still to come here.
  const FailureNotice* told = mesh_.control().failure_of(frame_.setting.group.id);
  if (told != nullptr && told->code != Errc::peer_lost && (closed != nullptr || is_settled)) {
    return ending::Told{*told};
  }
  if (is_settled) return gone(world_rank, closed);
  next.at_latest(settled);
  return std::nullopt;
}

Ending LossWatch::lost(int world_rank, const std::string& cause) const {
  const PeerLoss* loss = mesh_.loss_of(world_rank);
  ending::Lost lost{world_rank, cause, loss != nullptr ? loss->host : ""};
  const auto* wrong = mesh_.control().wrong_arguments(frame_.setting.group.id);
  if (wrong != nullptr) lost.wrong = *wrong;
  return lost;
}

/// The ending for a rank from which nothing more comes. If its connection ended and it is not known
/// to be lost, it has given up; in the middle of a message to us it could not say because of which
/// rank.
Ending LossWatch::gone(int world_rank, const std::string* closed) const {
  const PeerLoss* loss = mesh_.loss_of(world_rank);
  if (loss != nullptr) return lost(world_rank, loss->cause);
  for (const PeerLoss& other : mesh_.losses()) {
    if (frame_.is_lost_here(other)) return lost(other.rank, other.cause);
  }
  return lost(world_rank, *closed);
}

}  // namespace dlaunch
