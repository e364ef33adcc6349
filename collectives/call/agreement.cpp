#include "collectives/call/agreement.hpp"

#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using transport::Op;

/// The store is waited for so long at a time: then this rank looks whether ranks were lost, and
/// whether it was told to give up.
constexpr Clock::duration slice_first = 500us;
constexpr Clock::duration slice_max = 20ms;
constexpr std::size_t named_ranks_max = 16;

/// "agree 5 [train.cpp:42]": what a rank brings.
std::string contribution_text(Op op, std::uint32_t flags, const CallSite& site) {
  return std::string(transport::to_string(op)) + " " + std::to_string(flags) + place_text(site);
}

std::uint32_t flags_of(std::string_view contribution) {
  const auto space = contribution.find(' ');
  std::uint32_t flags = 0;
  std::from_chars(contribution.data() + space + 1, contribution.data() + contribution.size(),
                  flags);
  return flags;
}
std::string_view op_of(std::string_view contribution) {
  return contribution.substr(0, contribution.find(' '));
}
std::string_view place_of(std::string_view contribution) {
  const auto place = contribution.find(" [");
  return place == std::string_view::npos ? std::string_view() : contribution.substr(place);
}

std::string list_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < named_ranks_max; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > named_ranks_max) {
    text += " and " + std::to_string(ranks.size() - named_ranks_max) + " more";
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

class Meeting {
 public:
  Meeting(const AgreementSetting& setting, Op op, std::uint64_t number)
      : setting_(setting),
        op_(op),
        number_(number),
        until_(deadline_after(setting.timeout)),
        brought_(static_cast<std::size_t>(setting.group.size())),
        lost_(brought_.size()) {}

  Agreement run(std::uint32_t flags) {
    transport::Links& mesh = setting_.mesh;
    mesh.store().set(key(std::to_string(setting_.group.rank)),
                     as_bytes(contribution_text(op_, flags, setting_.site)));
    auto slice = slice_first;
    for (;;) {
      look_around();
      if (setting_.aborted) {
        throw CallError(Errc::aborted, label() + place_text(setting_.site) + ": " +
                                           setting_.aborted.text(setting_.group.rank));
      }
      const auto now = Clock::now();
      const bool late = now >= until_, decides = late || is_lowest_living();
      const auto until = std::min(until_, now + slice);
      if (decides && (late || all_come(until))) conclude(late);
      if (const auto outcome = find_outcome(decides ? now : until)) {
        return decode(as_text(*outcome));
      }
      slice = std::min(slice * 2, slice_max);
    }
  }

 private:
  /// The store is never waited for with the mesh's lock held: other threads go on.
  void look_around() {
    transport::Links& mesh = setting_.mesh;
    const auto lock = mesh.lock();
    const transport::Caller caller(mesh.progress_lock());
    // Steps the others' news on, too: they may still have to hear why this rank is here.
    mesh.step(Clock::now(), false);
    for (int rank = 0; rank < setting_.group.size(); ++rank) {
      lost_[static_cast<std::size_t>(rank)] = is_gone(rank);
    }
  }

  std::string label() const {
    return std::string(transport::to_string(op_)) + " #" + std::to_string(number_) + " of '" +
           setting_.group.name + "'";
  }
  std::string key(const std::string& part, std::uint64_t number) const {
    char prefix[64];
    std::snprintf(prefix, sizeof prefix, "agree/%x/%llx/%llu/", setting_.mesh.generation(),
                  static_cast<unsigned long long>(setting_.group.id),
                  static_cast<unsigned long long>(number));
    return prefix + part;
  }
  std::string key(const std::string& part) const { return key(part, number_); }

  std::optional<Bytes> find_outcome(Clock::time_point until) {
    try {
      return setting_.mesh.store().wait(key("outcome"), until);
    } catch (const Error& error) {
      if (error.errc() != Errc::timeout) throw;
      return std::nullopt;
    }
  }

  bool is_lost(int rank) const { return lost_[static_cast<std::size_t>(rank)]; }
  /// Without anybody who tells of losses, a rank that ended its connection is taken for lost.
  bool is_gone(int rank) const {
    const transport::Links& mesh = setting_.mesh;
    const int world_rank = setting_.group.world_rank(rank);
    if (world_rank == mesh.rank()) return false;
    if (mesh.loss_of(world_rank) != nullptr) return true;
    return !mesh.hears_of_losses() && mesh.end_of(world_rank) != nullptr;
  }
  bool is_lowest_living() const {
    for (int rank = 0; rank < setting_.group.rank; ++rank) {
      if (!is_lost(rank)) return false;
    }
    return true;
  }

  /// Those who live, as far as is known.
  bool all_come(Clock::time_point until) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < setting_.group.size(); ++rank) {
      if (!is_lost(rank)) keys.push_back(key(std::to_string(rank)));
    }
    try {
      setting_.mesh.store().wait_all(keys, until);
      return true;
    } catch (const Error& error) {
      if (error.errc() != Errc::timeout) throw;
      return false;
    }
  }

  /// Looks for what those bring who have not been seen to come.
  void look() {
    std::vector<int> awaited;
    std::vector<std::string> keys;
    for (int rank = 0; rank < setting_.group.size(); ++rank) {
      if (brought_[static_cast<std::size_t>(rank)] || is_lost(rank)) continue;
      awaited.push_back(rank);
      keys.push_back(key(std::to_string(rank)));
    }
    if (keys.empty()) return;
    const auto found = setting_.mesh.store().multi_get(keys);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!found[i]) continue;
      brought_[static_cast<std::size_t>(awaited[i])] = std::string(as_text(*found[i]));
    }
  }

  /// Writes the outcome down if everyone has come or is lost, or if it is `late`.
  void conclude(bool late) {
    look();
    std::vector<int> survivors, absent;
    std::map<std::string, int, std::less<>> ops;  // With the first rank that called it.
    std::uint32_t flags = ~std::uint32_t{0};
    for (int rank = 0; rank < setting_.group.size(); ++rank) {
      if (is_lost(rank)) continue;
      const auto& one = brought_[static_cast<std::size_t>(rank)];
      if (!one) {
        absent.push_back(rank);
        continue;
      }
      survivors.push_back(rank);
      ops.try_emplace(std::string(op_of(*one)), rank);
      flags &= flags_of(*one);
    }
    std::string outcome;
    if (ops.size() > 1) {
      const auto& [first, other] = std::pair(*ops.begin(), *ops.rbegin());
      const auto side = [&](const std::string& op, int rank) {
        return "rank " + std::to_string(rank) + " is in " + op + " #" + std::to_string(number_) +
               std::string(place_of(*brought_[static_cast<std::size_t>(rank)]));
      };
      outcome = "mismatch " + ranks_word({first.second, other.second}) + " " +
                side(first.first, first.second) + ", but " + side(other.first, other.second);
    } else if (absent.empty()) {
      outcome = "ok " + std::to_string(flags);
      for (const int rank : survivors) outcome += " " + std::to_string(rank);
    } else if (late) {
      char limit[32];
      std::snprintf(limit, sizeof limit, "%.3g s",
                    std::chrono::duration<double>(setting_.timeout).count());
      outcome = "timeout " + ranks_word(absent) + " rank " + std::to_string(setting_.group.rank) +
                " waited " + limit + "; absent, and not known to be lost: " + list_text(absent);
    } else {
      return;
    }
    setting_.mesh.store().compare_set(key("outcome"), std::nullopt, as_bytes(outcome));
    forget_previous();
  }

  /// A rank that is here has read the previous outcome.
  void forget_previous() {
    if (number_ == 1) return;
    auto& store = setting_.mesh.store();
    for (int rank = 0; rank < setting_.group.size(); ++rank) {
      store.erase(key(std::to_string(rank), number_ - 1));
    }
    store.erase(key("outcome", number_ - 1));
  }

  /// "1,3": those ranks, as numbers in the world, for whom to blame.
  std::string ranks_word(const std::vector<int>& ranks) const {
    std::string word;
    for (std::size_t i = 0; i < std::min(ranks.size(), Claim::ranks_max); ++i) {
      word += (i == 0 ? "" : ",") + std::to_string(setting_.group.world_rank(ranks[i]));
    }
    return word;
  }
  static std::vector<int> take_ranks_word(std::string_view& text) {
    std::vector<int> ranks;
    const auto end = std::min(text.find(' '), text.size());
    for (const char* at = text.data(); at < text.data() + end && ranks.size() < Claim::ranks_max;) {
      int rank = 0;
      const auto [after, error] = std::from_chars(at, text.data() + end, rank);
      if (error == std::errc{}) ranks.push_back(rank);
      at = after + 1;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
    return ranks;
  }

  Agreement decode(std::string_view outcome) const {
    const auto space = outcome.find(' ');
    const std::string_view kind = outcome.substr(0, space);
    std::string_view rest = outcome.substr(space + 1);
    if (kind == "mismatch" || kind == "timeout") {
      Claim claim{.fault = kind == "timeout" ? Fault::absent : Fault::disagreed};
      claim.ranks = take_ranks_word(rest);
      if (kind == "mismatch") {
        throw CallError(Errc::mismatch, label() + ": " + std::string(rest), std::move(claim));
      }
      throw CallError(Errc::timeout, label() + ": " + std::string(rest) + place_text(setting_.site),
                      std::move(claim));
    }
    std::vector<std::uint32_t> numbers;
    while (!rest.empty()) {
      const auto end = std::min(rest.find(' '), rest.size());
      std::uint32_t number = 0;
      std::from_chars(rest.data(), rest.data() + end, number);
      numbers.push_back(number);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    const auto size = static_cast<std::uint32_t>(setting_.group.size());
    if (kind != "ok" || numbers.empty() ||
        std::any_of(numbers.begin() + 1, numbers.end(), [&](auto rank) { return rank >= size; })) {
      throw CallError(Errc::internal, label() + ": the store holds '" + std::string(outcome) +
                                          "' as the outcome: use one version of dlaunch for all "
                                          "ranks, and no keys that begin with agree/");
    }
    Agreement agreement{numbers[0], {numbers.begin() + 1, numbers.end()}};
    if (!std::binary_search(agreement.survivors.begin(), agreement.survivors.end(),
                            setting_.group.rank)) {
      throw CallError(Errc::peer_lost, label() + ": the others took rank " +
                                           std::to_string(setting_.group.rank) +
                                           ", this one, for lost, and go on without it");
    }
    return agreement;
  }

  const AgreementSetting& setting_;
  const Op op_;
  const std::uint64_t number_;
  const Clock::time_point until_;
  std::vector<std::optional<std::string>> brought_;  ///< By rank, as far as they came.
  std::vector<bool> lost_;                           ///< By rank, as of the last look around.
};

}  // namespace

Agreement agree_among_living(const AgreementSetting& setting, Op op, std::uint64_t number,
                             std::uint32_t flags) {
  return Meeting(setting, op, number).run(flags);
}

}  // namespace dlaunch
