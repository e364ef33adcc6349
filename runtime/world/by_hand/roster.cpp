#include "runtime/world/by_hand/roster.hpp"

#include "runtime/base/phrases.hpp"

namespace dlaunch {
namespace {

/// The most names in a sentence; more would not help a reader.
constexpr std::size_t names_max = 32;
constexpr std::size_t refusals_max = 8;

}  // namespace

std::string to_string(const Member& member) {
  return "pid " + std::to_string(member.pid) + " on " + member.hostname;
}

std::optional<std::string> Roster::admit(const Member& newcomer) {
  const std::string rank = "rank " + std::to_string(newcomer.rank);
  const std::string who = to_string(newcomer);
  std::string why;
  if (newcomer.world_size != world_size_) {
    why = rank + " (" + who + ") says the world has " + std::to_string(newcomer.world_size) +
          " ranks, but rank 0";
    if (const auto first = members_.find(0); first != members_.end()) {
      why += " (" + to_string(first->second) + ")";
    }
    why += " says " + std::to_string(world_size_) + ": the world size must be the same everywhere";
  } else if (newcomer.rank < 0 || newcomer.rank >= world_size_) {
    why = rank + " (" + who + ") is not in a world of " + std::to_string(world_size_) +
          ": ranks go from 0 to " + std::to_string(world_size_ - 1);
  } else if (const auto first = members_.find(newcomer.rank); first != members_.end()) {
    why = rank + " is taken by " + to_string(first->second) + ", and " + who +
          " claims it, too: every process needs a rank of its own";
  } else {
    members_.emplace(newcomer.rank, newcomer);
    return std::nullopt;
  }
  if (refusals_.size() < refusals_max) refusals_.push_back(why);
  return why;
}

std::vector<int> Roster::absent(std::size_t most) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size_ && ranks.size() < most; ++rank) {
    if (!members_.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::string Roster::attendance() const {
  std::vector<std::string> absent, came;
  for (int rank = 0; rank < world_size_; ++rank) {
    const auto found = members_.find(rank);
    if (found == members_.end()) {
      absent.push_back(std::to_string(rank));
    } else {
      came.push_back("rank " + std::to_string(rank) + " (" + to_string(found->second) + ")");
    }
  }
  std::string text;
  if (absent.empty()) {
    text = "all " + std::to_string(world_size_) + " ranks came, but not all got ready";
  } else {
    text = (absent.size() == 1 ? "rank " : "ranks ") + listed(absent, names_max) + " of " +
           std::to_string(world_size_) + " did not come";
  }
  text += "; who came: " + listed(came, names_max);
  if (!refusals_.empty()) text += "; refused: " + listed(refusals_, names_max);
  return text;
}

}  // namespace dlaunch
