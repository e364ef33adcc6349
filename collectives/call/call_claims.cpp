#include "collectives/call/call.hpp"

#include <algorithm>
#include <utility>

/// Finds whose fault a call's failure is, and tells the others.
namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::FailureNotice;
using transport::Fingerprint;
using transport::Kind;
using transport::Scope;

/// For our own last words.
constexpr auto farewell_grace = 100ms;

}  // namespace

void Call::tell_failure(const Error& error, Scope scope) {
  auto& mesh = setting_.mesh;
  const auto ranks = others();
  const auto lock = mesh.lock();
  FailureNotice notice;
  notice.code = error.errc();
  notice.scope = scope;
  notice.communicator = setting_.group.id;
  // A message belongs to no collective: everything that is not over is concerned.
  notice.sequence = transport::is_message(fingerprint_.op) ? 0 : fingerprint_.sequence;
  // Others may still be in calls that are over here, and concerned: because it went wrong in one of
  // them, or concerned it where it came from.
  const auto* known = dynamic_cast<const CallError*>(&error);
  if (known != nullptr) notice.sequence = std::min(notice.sequence, known->since());
  const FailureNotice* const told = mesh.control().failure_of(setting_.group.id);
  if (scope == Scope::from_here_on && told != nullptr) {
    notice.sequence = std::min(notice.sequence, told->sequence);
  }
  notice.sentence = error.what();
  if (known != nullptr && known->told() && told != nullptr) {
    notice.met_by = told->met_by >= 0 ? told->met_by : told->from;
    notice.sentence = told->sentence;
  }
  notice.claim = claim_for_others(error);
  const Bytes payload = encode(notice);
  transport::Header header =
      make_header(Kind::failure, setting_.group.id, fingerprint_, payload.size());
  header.sequence = notice.sequence;
  if (scope == Scope::from_here_on) {
    // This communicator's calls in other threads hear of it, too.
    mesh.control().take_failure(std::move(notice));
    mesh.wake();
  }
  if (ranks.empty()) return;
  try {
    for (const int rank : ranks) mesh.post_control(rank, header, payload);
    const auto until = Clock::now() + farewell_grace;
    while (!mesh.is_flushed() && Clock::now() < until) mesh.step(until);
  } catch (const Error&) {
    // The agent or the store is gone too; the first error is the one that counts.
  }
}

/// Over a rank of which nothing more comes. One whose connection ended and that is not known to be
/// lost has given up, and in the midst of a message to us it could not say over whom.
void Call::throw_gone(int world_rank, const std::string* closed) {
  const PeerLoss* loss = setting_.mesh.loss_of(world_rank);
  if (loss != nullptr) throw_lost(world_rank, loss->cause);
  for (const PeerLoss& other : setting_.mesh.losses()) {
    const bool is_cause = !is_orderly(other) && setting_.group.rank_of(other.rank) >= 0;
    if (is_cause) throw_lost(other.rank, other.cause);
  }
  throw_lost(world_rank, *closed);
}

/// A fault of this rank's own names this rank to the others.
Claim Call::claim_for_others(const Error& failure) const {
  const auto* known = dynamic_cast<const CallError*>(&failure);
  if (known != nullptr && known->claim().fault != Fault::own) return known->claim();
  const bool wrong_call = failure.errc() == Errc::misuse || failure.errc() == Errc::unsupported;
  return {.fault = wrong_call ? Fault::arguments : Fault::gave_up, .ranks = {setting_.mesh.rank()}};
}

/// With what both called there, where it is a collective: whose call is the odd one, all ranks'
/// claims together tell.
Claim Call::disagreed_with(int world_rank, const std::optional<Fingerprint>& theirs) const {
  Claim claim{.fault = Fault::disagreed, .ranks = {world_rank}};
  if (!theirs) return claim;
  const auto mine = call_made(theirs->sequence);
  if (!mine || mine->sequence != theirs->sequence || *mine == *theirs) return claim;
  claim.communicator = setting_.group.id;
  claim.sequence = theirs->sequence;
  claim.votes = {{setting_.mesh.rank(), number_of(*mine)}, {world_rank, number_of(*theirs)}};
  return claim;
}

/// What another rank says, and where ranks disagree, what this one called.
Claim Call::claim_of(const FailureNotice& notice) const {
  Claim claim = notice.claim;
  const int me = setting_.mesh.rank();
  if (claim.votes.empty() || claim.votes.size() >= Claim::ranks_max) return claim;
  for (const Vote& vote : claim.votes) {
    if (vote.rank == me) return claim;
  }
  const auto mine = claim.communicator == setting_.group.id ? call_made(claim.sequence)
                                                            : std::optional<Fingerprint>();
  if (mine && mine->sequence == claim.sequence) claim.votes.push_back({me, number_of(*mine)});
  return claim;
}

void Call::throw_disagreement(const std::string& sentence, Claim claim, std::uint64_t since) const {
  const bool named = setting_.group.name != "world" && !transport::is_message(fingerprint_.op);
  throw CallError(Errc::mismatch, sentence + (named ? " of '" + setting_.group.name + "'" : ""),
                  std::move(claim))
      .since(since);
}

}  // namespace dlaunch
