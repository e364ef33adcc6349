#include "rendezvous/rounds/epoch.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/exit_code.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dlaunch::rendezvous {

Epoch::Epoch(Admission common)
    : number_(common.epoch),
      world_size_(common.world_size),
      node_count_(common.node_count),
      common_(std::move(common)) {
  legacy_.rank_of.reserve(static_cast<std::size_t>(node_count_));
}

Epoch::Epoch(const Holding& held, Clock::time_point back_by)
    : number_(held.epoch),
      world_size_(held.world_size),
      node_count_(held.node_count),
      back_(Comeback::of_nodes(held.node_count, back_by)) {}

Comeback Comeback::of_nodes(int count, Clock::time_point until) {
  Comeback all;
  for (int rank = 0; rank < count; ++rank) all.awaited.insert(all.awaited.end(), rank);
  all.until = until;
  return all;
}

bool Comeback::has_room(int node_rank, int first_rank, int workers) const {
  const auto next = places.upper_bound(node_rank);
  if (next != places.end() && first_rank + workers > next->second.first_rank) return false;
  if (next == places.begin()) return true;
  const Place& previous = std::prev(next)->second;
  return previous.first_rank + previous.workers <= first_rank;
}

std::vector<std::pair<int, int>> Comeback::gaps(int world_size) const {
  std::vector<std::pair<int, int>> gaps;
  int next = 0;
  const auto gap_until = [&](int rank) {
    if (rank > next) gaps.emplace_back(next, rank - next);
  };
  for (const auto& [node_rank, place] : places) {
    gap_until(place.first_rank);
    next = place.first_rank + place.workers;
  }
  gap_until(world_size);
  return gaps;
}

// ---- Its members ----

void Epoch::seat(const Node& node, Place place) {
  ++running_;
  legacy_.rank_of[node.offer.id] = place.node_rank;
  Participant member{node.offer.id, node.offer.host, node.session, std::move(place)};
  members_.insert_or_assign(node.session, std::move(member));
}

const Participant& Epoch::take_back(const Node& node, const Holding& held) {
  const int workers = node.offer.workers;
  seat(node, {held, workers});
  Participant& member = members_.at(node.session);
  member.confirmed = true;
  back_.places[held.node_rank] = {node.session, held.first_rank, workers};
  back_.awaited.erase(held.node_rank);
  if (back_.awaited.empty()) back_.until.reset();
  if (ending_) member.order = order_for(node.session);
  return member;
}

const Participant* Epoch::confirm(Session session) {
  const auto found = members_.find(session);
  if (found == members_.end() || found->second.ended) return nullptr;
  found->second.confirmed = true;
  return &found->second;
}

const Participant* Epoch::find(Session session) const {
  const auto found = members_.find(session);
  return found == members_.end() ? nullptr : &found->second;
}

Admission Epoch::admission_of(const Participant& member) const {
  Admission admission = common_;
  const Place& place = member.place;
  static_cast<Holding&>(admission) = place;
  admission.local_size = place.local_size;
  admission.crowded = place.housemates.crowded;
  admission.memory = place.housemates.memory;
  if (place.node_rank == 0) admission.roster = roster_;
  return admission;
}

const Participant* Epoch::with_rank(int rank) const {
  for (const auto& [session, member] : members_) {
    if (member.has(rank)) return &member;
  }
  return nullptr;
}

std::optional<Participant> Epoch::remove(Session session) {
  auto found = members_.extract(session);
  if (!found) return std::nullopt;
  if (!found.mapped().ended) --running_;
  return std::move(found.mapped());
}

// ---- What they tell ----

bool Epoch::is_first_news(const Participant& member, int rank) {
  return member.has(rank) && told_.insert(rank).second;
}

std::optional<RanksLost> Epoch::take_failure(const Participant& member, const WorkerFailed& e) {
  const int rank = e.fact.rank;
  if (!is_first_news(member, rank)) return std::nullopt;
  facts_.ranks.insert_or_assign(rank, e.fact);
  hosts_[rank] = member.host;
  return RanksLost{number_, rank, 1, member.host, Departure::of(e.fact), member.session};
}

/// Most often this is the usual end of a job, so only the first few ranks to leave are reported:
/// others may wait for those, and nobody waits for the last.
std::optional<RanksLost> Epoch::take_exit(const Participant& member, int rank) {
  constexpr std::size_t told_max = 16;
  if (!is_first_news(member, rank)) return std::nullopt;
  facts_.add_left(rank);
  const bool is_last = static_cast<int>(told_.size()) == world_size_;
  if (is_last || exits_told_++ >= told_max) return std::nullopt;
  const Departure how{.kind = Departure::Kind::left};
  repeatable_.push_back({number_, rank, 1, member.host, how, member.session});
  return repeatable_.back();
}

const WorkersEnded& Epoch::take_end(WorkersEnded e) {
  using Outcome = WorkersEnded::Outcome;
  Participant& member = members_.at(e.session);
  take_facts(member, e);
  member.ended = true;
  --running_;
  // In an epoch that was taken up, an earlier rendezvous may have asked for it.
  if (e.outcome == Outcome::stopped && !ending_ && back_.places.empty()) {
    e.outcome = Outcome::failed;
    if (e.sentence.empty()) e.sentence = "the workers were stopped from outside";
  }
  return ends_.emplace_back(std::move(e));
}

void Epoch::take_calls(const CallsMade& e) {
  for (const auto& communicator : e.communicators) ledger_.add(communicator);
}

void Epoch::take_leave(int exit_code, const std::string& reason) {
  if (!left_) left_ = Left{exit_code, reason};
}

/// The facts that a node sends when all its workers have ended replace earlier ones, since later
/// claims may have come.
void Epoch::take_facts(const Participant& member, const WorkersEnded& e) {
  for (const auto& [rank, fact] : e.facts.ranks) {
    if (member.has(rank)) facts_.ranks.insert_or_assign(rank, fact);
  }
  for (const auto& [first, count] : e.facts.left) {
    if (member.has(first) && count > 0 && member.has(first + count - 1)) {
      facts_.add_left(first, count);
    }
  }
  if (e.outcome == WorkersEnded::Outcome::succeeded) {
    facts_.add_left(member.place.first_rank, member.place.local_size);
  }
  constexpr std::size_t kept_max = 256;
  for (const auto& details : e.details) {
    if (member.has(details.rank) && details_.size() < kept_max) {
      details_.emplace(details.rank, details).first->second.node = member.id;
    }
  }
}

RanksLost Epoch::lose(const Participant& member, Clock::time_point last_heard,
                      const std::string& why) {
  const int first = member.place.first_rank;
  const int count = member.place.local_size;
  facts_.lost[first] = count;
  // A failure on the lost node itself came before its loss.
  if (ending_ && last_heard <= ending_->at && member.session != ending_->told_by) {
    ending_->lost_before = true;
  }
  return {number_, first, count, member.host, Departure::because(why), member.session};
}

std::vector<RanksLost> Epoch::lose_awaited(const std::string& why) {
  std::vector<RanksLost> losses;
  for (const auto& [first, count] : back_.gaps(world_size_)) {
    facts_.lost[first] = count;
    losses.push_back({number_, first, count, "an absent node", Departure::because(why), 0});
  }
  back_.awaited.clear();
  back_.until.reset();
  return losses;
}

void Epoch::count_as_failed(Session session, const std::string& why) {
  ends_.push_back({session, number_, WorkersEnded::Outcome::failed, exit_code::node_lost, why});
}

/// Consecutive ranks share a sentence: thousands may be lost at once when a switch fails.
std::vector<RanksLost> Epoch::worth_telling(std::vector<RanksLost> losses, bool goes_on) {
  std::sort(losses.begin(), losses.end(),
            [](const auto& a, const auto& b) { return a.first_rank < b.first_rank; });
  std::vector<RanksLost> ranges;
  bool of_several = false;  // Whether the last range has several nodes.
  for (auto& next : losses) {
    if (!ranges.empty() && ranges.back().first_rank + ranges.back().count == next.first_rank) {
      RanksLost& range = ranges.back();
      range.count += next.count;
      range.except = 0;
      if (std::exchange(of_several, true)) continue;
      range.host += " and others";
      range.how.words += ", and so are others";
    } else {
      ranges.push_back(std::move(next));
      of_several = false;
    }
  }
  // A node that is about to stop at once needs no complete list.
  constexpr std::size_t told_max = 8;
  constexpr std::size_t said_again_max = 1024;
  if (!goes_on) {
    ranges.resize(std::min(ranges.size(), told_max - std::min(losses_told_, told_max)));
    losses_told_ += ranges.size();
  }
  for (const auto& range : ranges) {
    if (repeatable_.size() < said_again_max) repeatable_.push_back(range);
  }
  return ranges;
}

std::vector<RanksLost> Epoch::told_again(Session to) const {
  std::vector<RanksLost> again;
  for (const auto& loss : repeatable_) {
    if (loss.except != to) again.emplace_back(loss).to = to;
  }
  return again;
}

std::vector<Stop> Epoch::begin_end(Ending why) {
  ending_ = std::move(why);
  std::vector<Stop> orders;
  for (auto& [session, member] : members_) {
    if (session == ending_->told_by || member.ended) continue;
    member.order = order_for(session);
    orders.push_back(*member.order);
  }
  return orders;
}

/// After a failure or a loss, ranks that wait for a lost one may first say so, and then end.
Stop Epoch::order_for(Session session) const {
  const bool someone_is_missed =
      ending_->cause == EndCause::failure || ending_->cause == EndCause::loss;
  return {session, number_, someone_is_missed ? Stop::Cause::failure : Stop::Cause::membership,
          ending_->reason};
}

void Epoch::forgive(Clock::duration slept) {
  for (auto* deadline : {&back_.until, &legacy_.leaving_until}) {
    if (*deadline) *deadline = deadline_after(slept, **deadline);
  }
}

// ---- What is known of its ranks ----

/// The cause. If ranks disagree on a call, those that have returned from it and ended are counted,
/// too.
std::optional<Verdict> Epoch::find_cause() const {
  std::set<std::pair<std::uint64_t, std::uint64_t>> disputed;
  for (const auto& [rank, fact] : facts_.ranks) {
    if (!fact.claim || fact.claim->votes.empty()) continue;
    disputed.emplace(fact.claim->communicator, fact.claim->sequence);
  }
  std::vector<Count> counts;
  for (const auto& [communicator, sequence] : disputed) {
    for (const Count& count : ledger_.counts(communicator, sequence)) counts.push_back(count);
  }
  if (counts.empty()) return dlaunch::judge(facts_);
  Facts facts = facts_;
  facts.counts = std::move(counts);
  return dlaunch::judge(facts);
}

bool Epoch::is_open(const Verdict& verdict) const {
  if (verdict.kind == Verdict::Kind::lost) return true;
  const auto fact = facts_.ranks.find(verdict.rank());
  return fact != facts_.ranks.end() && lost_somebody(verdict, fact->second.claim);
}

std::string Epoch::text_of(const Verdict& verdict) const {
  return sentence_of(verdict, [this](int rank) { return name_of_rank(rank); });
}

std::string Epoch::name_of_rank(int rank) const {
  const std::string which = "rank " + std::to_string(rank);
  if (const Participant* member = with_rank(rank)) return which + " on " + member->host;
  const auto known = hosts_.find(rank);
  return known == hosts_.end() ? which : which + " on " + known->second;
}

std::optional<RankDetails> Epoch::details_of(int rank) const {
  const auto known = details_.find(rank);
  return known == details_.end() ? std::nullopt : std::optional(known->second);
}

}  // namespace dlaunch::rendezvous
