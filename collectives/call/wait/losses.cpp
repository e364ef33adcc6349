#include "collectives/call/wait/losses.hpp"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::FailureNotice;

/// A closed connection says that a peer is gone, the agent says why; its word is waited for.
constexpr auto cause_grace = 150ms;
/// The same of a rank on another node: that node may be gone with its agent, of which the others
/// hear when its connection has not come back for 2 s.
constexpr auto node_cause_grace = 3s;
/// News of an end may overtake what the rank had sent before: its data, or why it gave up.
constexpr auto delivery_grace = 20ms;
/// Without an agent only other ranks can say why a rank gave up, and the one that does may have
/// many to tell and no processor.
constexpr auto hearsay_grace = 500ms;
/// A rank that this one does not wait for died: a call whose data is all on its way may still end
/// well.
constexpr auto indirect_grace = 300ms;
/// The first connection of a rank that left in good order may have met a network that loses.
constexpr auto connection_grace = 500ms;
/// A rank that has left may have done all its part in what a device does.
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
    // From anybody: only when nobody is left who could send.
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

/// Ranks that were given up with their node may still do their part, and are to be missed all the
/// same: by the collectives that come later, however quick they are.
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

/// A rank, which nobody waits for in particular, can take no more part in the call.
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

/// Why nothing more comes from this rank by the way the call goes; null if more may come.
const std::string* LossWatch::end_of(int world_rank, const Waiting& waiting) const {
  static const std::string left = "it destroyed its communicator";
  if (!waiting.in_shm_group) return mesh_.end_of(world_rank);
  const int rank = frame_.setting.group.rank_of(world_rank);
  const int member = frame_.shm != nullptr ? rank : frame_.nodes->layout().index_of(rank);
  return frame_.shm_here()->has_left(member) ? &left : nullptr;
}

/// A message sent before a rank left in good order may still be on its way when its end is known.
std::optional<Ending> LossWatch::look_at_source(int world_rank, const Waiting& waiting,
                                                NextLook& next) {
  const std::string* closed = end_of(world_rank, waiting);
  const PeerLoss* loss = mesh_.loss_of(world_rank);
  const bool may_come =
      closed == nullptr && loss != nullptr && loss->left && mesh_.has_left_something(world_rank);
  return may_come ? std::nullopt : look_at(world_rank, closed, next);
}

/// How long the cause of a rank's end, or what it had sent before, may take to come.
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

/// It is certain that nothing more comes from, or goes to, this rank, and the cause is known or
/// will not become known.
std::optional<Ending> LossWatch::look_at(int world_rank, const std::string* closed,
                                         NextLook& next) {
  if (mesh_.loss_of(world_rank) == nullptr && closed == nullptr) return std::nullopt;
  const auto settled = noticed(world_rank) + grace_for(world_rank);
  const bool is_settled = Clock::now() >= settled;
  // The others may have given up in a call that is still to come here, and left: that is why.
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

/// A rank of which nothing more comes. One whose connection ended and that is not known to be lost
/// has given up, and in the midst of a message to us it could not say over whom.
Ending LossWatch::gone(int world_rank, const std::string* closed) const {
  const PeerLoss* loss = mesh_.loss_of(world_rank);
  if (loss != nullptr) return lost(world_rank, loss->cause);
  for (const PeerLoss& other : mesh_.losses()) {
    if (frame_.is_lost_here(other)) return lost(other.rank, other.cause);
  }
  return lost(world_rank, *closed);
}

}  // namespace dlaunch
