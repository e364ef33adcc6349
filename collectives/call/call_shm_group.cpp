#include "collectives/call/call.hpp"
#include "runtime/segment/flight_log.hpp"

#include <algorithm>

/// A call as its shm group's wait policy: how it waits for a member, and what it says where they
/// disagree.
namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::Fingerprint;

/// For what another rank has to say about its wrong arguments, which its flag line cannot hold.
constexpr auto sentence_grace = 1s;
/// A rank that waits by its node looks so often at what others do that it does not wait for.
constexpr auto stray_interval = 10ms;
/// And one that waits for others directly, once it has waited for long.
constexpr auto stray_interval_in_flat = 100ms;

/// While it lives, the shm group's members ring this rank's bell when they publish. Under the
/// mesh's lock.
class Sleeper {
 public:
  Sleeper(transport::ShmGroup& shm, transport::Links& mesh) : shm_(shm), mesh_(mesh) {
    shm_.count_sleeper(true);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  ~Sleeper() {
    mesh_.get_up();
    shm_.count_sleeper(false);
  }

 private:
  transport::ShmGroup& shm_;
  transport::Links& mesh_;
};

}  // namespace

void Call::wait_long(int member, const std::function<bool()>& ready) {
  transport::ShmGroup& shm = *shm_here();
  const auto lock = setting_.mesh.lock();
  const Sleeper sleeper(shm, setting_.mesh);
  const Waiting waiting{.rank = setting_.group.world_rank(rank_of_member(member)),
                        .in_shm_group = true,
                        .has_spun = true};
  wait_loop(waiting, [&] {
    // Announced before the last look: whoever publishes after it sees that we sleep.
    shm.lie_down();
    return ready();
  });
}

/// A member's calls are in its flight recorder before it publishes their first step.
std::optional<Fingerprint> Call::call_of(int member, std::uint32_t hash) const {
  const auto& segment = setting_.mesh.segment();
  const int local = segment->local_of(setting_.group.world_rank(rank_of_member(member)));
  if (local < 0) return std::nullopt;
  return find_recorded(segment->flight(local), [&](const Fingerprint& call) {
    return transport::ShmGroup::hash_of(call.record()) == hash;
  });
}

void Call::disagree(int member, std::uint32_t call) {
  const int world_rank = setting_.group.world_rank(rank_of_member(member));
  const auto lock = setting_.mesh.lock();
  const Busy busy(*this);
  // If it had wrong arguments, it has said so before it came to where it is.
  setting_.mesh.step(Clock::now());
  const auto theirs = call_of(member, call);
  const std::string sentence =
      theirs
          ? disagreement(*theirs, world_rank)
          : "rank " + std::to_string(rank()) + " is in " + to_string(fingerprint_) + where() +
                ", but " + name_of(world_rank) + " is in another call, of which no record is left";
  throw_disagreement(sentence + refused_text(), disagreed_with(world_rank, theirs),
                     theirs ? theirs->sequence : fingerprint_.sequence);
}

void Call::disagree_with_refused(int member) {
  const int world_rank = setting_.group.world_rank(rank_of_member(member));
  const auto lock = setting_.mesh.lock();
  // It says itself what was wrong.
  const Busy busy(*this);
  for (const auto until = Clock::now() + sentence_grace; Clock::now() < until;) {
    check_news(nullptr);
    setting_.mesh.step(until);
  }
  throw_disagreement(label() + " cannot complete, because its arguments were wrong on " +
                         name_of(world_rank) + where(),
                     {.fault = Fault::arguments, .ranks = {world_rank}});
}

/// Others may have been wrong in the same call; that is no reason to leave the step out. By their
/// nodes ranks may have had no step to take: who has taken one hears of the wrong arguments while
/// it waits for this rank's, or finds its next call there.
void Call::refuse() {
  if (shm_ == nullptr) return;
  tolerant_ = true;
  shm_->refuse();
}

void Call::differ(int member, std::uint64_t theirs, std::uint64_t ours) {
  const int world_rank = setting_.group.world_rank(rank_of_member(member));
  const auto lock = setting_.mesh.lock();
  const Busy busy(*this);
  throw_disagreement(disagreement(fingerprint_, world_rank) + counts_text(theirs, ours),
                     disagreed_with(world_rank, std::nullopt));
}

/// A rank waits for few others, of which none need know that they are in another call: who is in
/// one has published it to its node, or sent something that is not of this one.
void Call::check_strays(TimePoint now) {
  const bool is_first = waits().look_at_strays == TimePoint{};
  if (!is_first && now < waits().look_at_strays) {
    waits().look_again = std::min(waits().look_again, waits().look_at_strays);
    return;
  }
  waits().look_at_strays = now + (nodes_ != nullptr ? stray_interval : stray_interval_in_flat);
  waits().look_again = std::min(waits().look_again, waits().look_at_strays);
  if (is_first || tolerant_) return;
  const auto is_other = [&](const Fingerprint& theirs) {
    return theirs.sequence <= fingerprint_.sequence && theirs != fingerprint_;
  };
  transport::ShmGroup* shm = nodes_ != nullptr ? nodes_->shm() : nullptr;
  for (int member = 0; shm != nullptr && member < shm->size(); ++member) {
    const std::uint32_t ahead = shm->call_ahead(member);
    const auto call = ahead != 0 ? call_of(member, ahead) : std::nullopt;
    if (!call || !is_other(*call)) continue;
    const int world_rank = setting_.group.world_rank(nodes_->rank_of(member));
    throw_disagreement(disagreement(*call, world_rank), disagreed_with(world_rank, *call),
                       call->sequence);
  }
  const auto stray = setting_.mesh.inbox().find_parked(
      setting_.group.id,
      [&](const transport::Header& header) { return is_other(fingerprint_of(header)); });
  if (!stray) return;
  const Fingerprint theirs = fingerprint_of(stray->second);
  throw_disagreement(disagreement(theirs, stray->first), disagreed_with(stray->first, theirs),
                     theirs.sequence);
}

}  // namespace dlaunch
