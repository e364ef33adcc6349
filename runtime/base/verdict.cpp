#include "runtime/base/verdict.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <set>
#include <string_view>
#include <tuple>

namespace dlaunch {
namespace {

using Kind = Verdict::Kind;

/// Ranks that fail within this time of each other fail for the same reason.
constexpr auto one_blow = std::chrono::seconds(1);
/// The most ranks that are named.
constexpr std::size_t named_max = 8;

bool is_in(const std::map<int, int>& ranges, int rank) {
  const auto after = ranges.upper_bound(rank);
  if (after == ranges.begin()) return false;
  const auto& [first, count] = *std::prev(after);
  return rank - first < count;
}

/// What becomes of a claim, by how sure it is of whom it blames: the surest last.
struct FaultRow {
  Fault fault;
  Kind kind;  ///< The verdict on the ranks it blames, if they are the cause.
};
constexpr FaultRow faults[] = {
    {Fault::own, Kind::failed},          {Fault::lost, Kind::lost},
    {Fault::absent, Kind::absent},       {Fault::gave_up, Kind::gave_up},
    {Fault::disagreed, Kind::disagreed}, {Fault::arguments, Kind::arguments},
};
static_assert(std::size(faults) == static_cast<std::size_t>(fault_last) + 1);

/// All that is known of a kind of verdict, in the order in which one of several independent causes
/// is told. A rank that the others only lost, or that did not come, may itself have waited for
/// another.
struct KindRow {
  Kind kind;
  /// The cause lives on or did well, so the ranks that failed because of it give the code.
  bool is_bystander;
  bool nobody_failed;
  std::string_view of_one;
  std::string_view of_several = of_one;
};
constexpr KindRow kinds[] = {
    {Kind::failed, false, false, ""},  // Its end says it.
    {Kind::node_lost, true, false, "was lost with the node", "were lost with the node"},
    {Kind::arguments, false, false, "gave a call wrong arguments"},
    {Kind::disagreed, false, false, "made another call than the others",
     "made calls that do not agree"},
    {Kind::gave_up, false, false, "gave up a call that the others were in"},
    {Kind::left, true, true, left_text},
    {Kind::absent, true, false, "did not come in time"},
    {Kind::lost, true, true, "was lost to the others while it ran",
     "were lost to the others while they ran"},
};
static_assert(std::size(kinds) == static_cast<std::size_t>(Verdict::kind_last) + 1);

const FaultRow* row_of(Fault fault) { return std::ranges::find(faults, fault, &FaultRow::fault); }
const KindRow* row_of(Kind kind) { return std::ranges::find(kinds, kind, &KindRow::kind); }

bool earlier(const Fact& a, const Fact& b) {
  return std::tie(a.when, a.rank) < std::tie(b.when, b.rank);
}

class Judge {
 public:
  explicit Judge(const Facts& facts) : facts_(facts) {}

  std::optional<Verdict> run() {
    if (std::none_of(facts_.ranks.begin(), facts_.ranks.end(),
                     [](const auto& known) { return known.second.failed(); })) {
      return std::nullopt;
    }
    count_votes();
    for (const auto& [rank, fact] : facts_.ranks) {
      if (is_victim(fact)) blamed_[rank] = blamed_by(fact);
    }
    find_ends();
    if (causes_.empty()) find_circle();
    if (causes_.empty()) return verdict_of(Kind::failed, {first_failed(facts_.ranks).rank});
    const auto best = std::min_element(
        causes_.begin(), causes_.end(),
        [](const auto& a, const auto& b) { return row_of(a.first) < row_of(b.first); });
    if (best->first == Kind::failed) return verdict_of(Kind::failed, {first_cause(best->second)});
    return verdict_of(best->first, {best->second.begin(), best->second.end()});
  }

 private:
  using Call = std::pair<std::uint64_t, std::uint64_t>;

  static bool is_victim(const Fact& fact) {
    return fact.claim && fact.claim->fault != Fault::own && fact.end != Fact::End::left &&
           !fact.was_struck();
  }

  void count_votes() {
    std::map<Call, std::map<int, std::uint64_t>> votes;
    for (const auto& [rank, fact] : facts_.ranks) {
      if (!fact.claim) continue;
      auto& of_call = votes[{fact.claim->communicator, fact.claim->sequence}];
      for (const Vote& vote : fact.claim->votes) {
        const auto [known, is_new] = of_call.emplace(vote.rank, vote.call);
        if (!is_new) known->second = std::min(known->second, vote.call);
      }
    }
    for (const auto& [call, by_rank] : votes) {
      std::map<std::uint64_t, std::uint64_t> count;
      for (const auto& [rank, voted] : by_rank) ++count[voted];
      // The counts may include ranks that have voted.
      for (const auto& [voted, ranks] : counted(call)) count[voted] = std::max(count[voted], ranks);
      std::uint64_t all = 0;
      for (const auto& [voted, ranks] : count) all += ranks;
      auto& wrong = wrong_[call];
      for (const auto& [rank, voted] : by_rank) {
        if (count[voted] * 2 <= all) wrong.insert(rank);
      }
      for (const Count& one : facts_.counts) {
        const bool is_of_call = Call(one.communicator, one.sequence) == call;
        if (is_of_call && count[one.first.call] * 2 <= all) wrong.insert(one.first.rank);
      }
      // There is no majority if no call was made by more than half of the ranks.
      const bool has_majority = std::any_of(count.begin(), count.end(),
                                            [&](const auto& one) { return one.second * 2 > all; });
      if (has_majority) continue;
      for (const auto& [rank, voted] : by_rank) wrong.insert(rank);
    }
  }

  /// How many ranks made each call there, by the counts alone.
  std::map<std::uint64_t, std::uint64_t> counted(const Call& call) const {
    std::map<std::uint64_t, std::uint64_t> made;
    for (const Count& one : facts_.counts) {
      if (Call(one.communicator, one.sequence) == call) made[one.first.call] += one.ranks;
    }
    return made;
  }

  std::set<int> blamed_by(const Fact& fact) const {
    const Claim& claim = *fact.claim;
    std::set<int> ranks(claim.ranks.begin(), claim.ranks.end());
    if (claim.fault != Fault::disagreed) return ranks;
    const auto wrong = wrong_.find({claim.communicator, claim.sequence});
    if (wrong != wrong_.end() && !wrong->second.empty()) return wrong->second;
    // The sentences about both calls are equal, yet the calls differ in some detail.
    ranks.insert(fact.rank);
    return ranks;
  }

  /// The verdict's kind if the chain ends at this rank, which blames nobody else; nullopt if it
  /// goes on.
  std::optional<Kind> end_at(int rank, int victim, Fault fault) const {
    if (rank == victim) return row_of(fault)->kind;
    const auto others = blamed_.find(rank);
    if (others != blamed_.end()) {
      if (!others->second.contains(rank)) return std::nullopt;
      return row_of(facts_.ranks.at(rank).claim->fault)->kind;
    }
    const auto known = facts_.ranks.find(rank);
    const bool failed = known != facts_.ranks.end() && known->second.failed();
    if (failed) return Kind::failed;
    if (facts_.is_lost(rank)) return Kind::node_lost;
    const bool waited_for = fault == Fault::lost || fault == Fault::absent;
    return waited_for && facts_.has_left(rank) ? Kind::left : row_of(fault)->kind;
  }

  void find_ends() {
    for (const auto& [rank, fact] : facts_.ranks) {
      if (fact.failed() && !blamed_.contains(rank)) causes_[Kind::failed].insert(rank);
    }
    for (const auto& [victim, ranks] : blamed_) {
      const Fault fault = facts_.ranks.at(victim).claim->fault;
      for (const int rank : ranks) {
        if (const auto kind = end_at(rank, victim, fault)) causes_[*kind].insert(rank);
      }
    }
  }

  /// If all victims blame each other, the most certain claims count.
  void find_circle() {
    const FaultRow* most = faults;
    for (const auto& [victim, ranks] : blamed_) {
      if (!ranks.empty()) most = std::max(most, row_of(facts_.ranks.at(victim).claim->fault));
    }
    for (const auto& [victim, ranks] : blamed_) {
      const bool is_most = facts_.ranks.at(victim).claim->fault == most->fault;
      if (is_most && !ranks.empty()) causes_[most->kind].insert(ranks.begin(), ranks.end());
    }
  }

  int first_cause(const std::set<int>& ranks) const {
    std::map<int, Fact> failed;
    for (const int rank : ranks) failed.emplace(rank, facts_.ranks.at(rank));
    const auto until = first_failed(failed).when + one_blow;
    std::map<int, Fact> struck;
    for (const auto& [rank, fact] : failed) {
      if (fact.was_struck() && fact.when <= until) struck.emplace(rank, fact);
    }
    return first_failed(struck.empty() ? failed : struck).rank;
  }

  static const Fact& first_failed(const std::map<int, Fact>& ranks) {
    const Fact* first = nullptr;
    for (const auto& [rank, fact] : ranks) {
      if (fact.failed() && (first == nullptr || earlier(fact, *first))) first = &fact;
    }
    return *first;
  }

  /// The ranks that blame one of `causes`, directly or through others.
  std::set<int> waiters_for(const std::vector<int>& causes) const {
    std::map<int, std::vector<int>> victims_of;
    for (const auto& [victim, ranks] : blamed_) {
      for (const int rank : ranks) victims_of[rank].push_back(victim);
    }
    std::set<int> found;
    std::vector<int> todo = causes;
    while (!todo.empty()) {
      const int rank = todo.back();
      todo.pop_back();
      for (const int victim : victims_of[rank]) {
        if (found.insert(victim).second) todo.push_back(victim);
      }
    }
    return found;
  }

  Verdict verdict_of(Kind kind, std::vector<int> ranks) const {
    Verdict verdict;
    verdict.kind = kind;
    verdict.ranks = std::move(ranks);
    const Fact* own = nullptr;
    for (const int rank : verdict.ranks) {
      const auto known = facts_.ranks.find(rank);
      if (own == nullptr && known != facts_.ranks.end() && known->second.failed()) {
        own = &known->second;
      }
    }
    const Fact* first = nullptr;
    for (const int rank : waiters_for(verdict.ranks)) {
      const Fact& waiter = facts_.ranks.at(rank);
      if (!waiter.failed() || std::count(verdict.ranks.begin(), verdict.ranks.end(), rank) > 0) {
        continue;
      }
      if (first == nullptr || earlier(waiter, *first)) first = &waiter;
    }
    const Fact* telling =
        own == nullptr || (first != nullptr && row_of(kind)->is_bystander) ? first : own;
    if (telling == nullptr) telling = &first_failed(facts_.ranks);
    verdict.exit_code = telling->shell_code() != 0 ? telling->shell_code() : 1;
    if (own != nullptr && own->rank == verdict.rank()) {
      verdict.code = own->exit_code;
      verdict.signal = own->signal;
      verdict.core_dumped = own->core_dumped;
    }
    if (kind == Kind::absent || kind == Kind::lost) verdict.doing = told_of(verdict.rank(), kind);
    return verdict;
  }

  /// What another rank that blames this one says of it.
  std::string told_of(int blamed, Kind kind) const {
    for (const auto& [rank, fact] : facts_.ranks) {
      if (!fact.claim || row_of(fact.claim->fault)->kind != kind) continue;
      const auto& ranks = fact.claim->ranks;
      if (!ranks.empty() && ranks.front() == blamed && rank != blamed) return fact.claim->doing;
    }
    return {};
  }

  const Facts& facts_;
  std::map<Call, std::set<int>> wrong_;   ///< By call about which ranks disagree.
  std::map<int, std::set<int>> blamed_;   ///< By victim.
  std::map<Kind, std::set<int>> causes_;  ///< Never with an empty set.
};

}  // namespace

void Facts::add_left(int first, int count) {
  if (count < 1 || (is_in(left, first) && is_in(left, first + count - 1))) return;
  left.erase(left.lower_bound(first), left.lower_bound(first + count));
  const auto next = left.lower_bound(first);
  if (next != left.begin()) {
    auto& [before, known] = *std::prev(next);
    if (before + known == first) {
      known += count;
      return;
    }
  }
  left[first] = count;
}

bool Facts::has_left(int rank) const {
  const auto known = ranks.find(rank);
  if (known != ranks.end() && known->second.end == Fact::End::left) return true;
  return is_in(left, rank);
}

bool Fact::was_struck() const { return failed() && signal != 0 && signal != SIGABRT; }

bool Facts::is_lost(int rank) const { return is_in(lost, rank); }

std::optional<Verdict> judge(const Facts& facts) { return Judge(facts).run(); }

bool lost_somebody(const Verdict& cause, const std::optional<Claim>& of_cause) {
  return cause.kind == Kind::failed && of_cause && of_cause->fault == Fault::lost;
}

bool Verdict::nobody_failed() const { return row_of(kind)->nobody_failed; }

std::string sentence_of(const Verdict& verdict, const NameOfRank& name) {
  const std::string who = listed(verdict.ranks, named_max, name);
  if (verdict.kind == Kind::failed) {
    return who + (verdict.signal != 0 ? " was " : " ") +
           end_text(verdict.code, verdict.signal, verdict.core_dumped);
  }
  const KindRow& row = *row_of(verdict.kind);
  return who + " " + std::string(verdict.ranks.size() == 1 ? row.of_one : row.of_several) +
         (verdict.doing.empty() ? "" : ": " + verdict.doing);
}

}  // namespace dlaunch
