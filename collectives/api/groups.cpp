#include "collectives/algorithms/algorithms.hpp"
#include "collectives/call/checks.hpp"
#include "collectives/communicator/state.hpp"

#include <algorithm>
#include <array>

namespace dlaunch {
namespace {

using transport::Fingerprint;
using transport::Op;

/// An id that is the same on all members and differs for each group, made of what the members have
/// in common.
std::uint64_t derived_id(std::uint64_t parent, Op how, std::uint64_t which, std::uint64_t part) {
  const std::array<std::uint64_t, 4> parts{parent, static_cast<std::uint64_t>(how), which, part};
  return transport::hash_bytes(parts.data(), sizeof parts);
}

std::uint64_t hash_ranks(std::span<const int> ranks) {
  return transport::hash_bytes(ranks.data(), ranks.size_bytes());
}

/// A list of ranks, each of them once.
void check_ranks(const Call& call, std::span<const int> ranks) {
  require(call, !ranks.empty(), [&] { return std::string("a group has at least one rank"); });
  std::vector<bool> seen(static_cast<std::size_t>(call.size()));
  for (const int rank : ranks) {
    require(call, rank >= 0 && rank < call.size(), [&] {
      return std::string("there is no rank " + std::to_string(rank) + ", ranks are 0 to " +
                         std::to_string(call.size() - 1));
    });
    require(call, !seen[static_cast<std::size_t>(rank)],
            [&] { return std::string("rank " + std::to_string(rank) + " is listed twice"); });
    seen[static_cast<std::size_t>(rank)] = true;
  }
}

/// "0,2,5", so that ranks with different lists see how they differ.
std::string list_text(std::span<const int> ranks) {
  constexpr std::size_t named_max = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), named_max); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(ranks[i]);
  }
  if (ranks.size() > named_max)
    text += " and " + std::to_string(ranks.size() - named_max) + " more";
  return text;
}

/// The group of those ranks of `parent`; nullopt where this rank is not one of them.
std::optional<Group> subgroup(const Group& parent, std::span<const int> ranks, std::uint64_t id,
                              const std::string& suffix) {
  const auto me = std::find(ranks.begin(), ranks.end(), parent.rank);
  if (me == ranks.end()) return std::nullopt;
  Group group;
  group.name = parent.name + "/" + suffix;
  group.id = id;
  group.rank = static_cast<int>(me - ranks.begin());
  for (const int rank : ranks) group.world_ranks.push_back(parent.world_rank(rank));
  return group;
}

}  // namespace

const std::vector<int>& Communicator::world_ranks() const noexcept {
  return state_->group.world_ranks;
}

std::optional<int> Communicator::translate(int rank, const Communicator& other) const {
  if (rank < 0 || rank >= size()) return std::nullopt;
  const int there = other.state_->group.rank_of(state_->group.world_rank(rank));
  return there >= 0 ? std::optional(there) : std::nullopt;
}

std::optional<Communicator> Communicator::split(std::optional<int> color, int key,
                                                const Options& options) {
  struct Choice {
    std::int64_t color;
    std::int64_t key;
  };
  Fingerprint fingerprint;
  fingerprint.op = Op::split;
  std::optional<Group> made;
  std::unique_ptr<DeviceCalls> on_device;
  state_->collective(fingerprint, options, [&](Call& call) {
    require(call, !color || *color >= 0,
            [&] { return std::string("a colour is not negative; a rank may also have none"); });
    std::vector<Choice> choices(static_cast<std::size_t>(size()));
    choices[static_cast<std::size_t>(rank())] = {color ? *color : -1, key};
    algorithms::all_gather(call.ranks(), {reinterpret_cast<std::byte*>(choices.data()),
                                          {call.size(), sizeof(Choice)}});
    if (!color) {
      state_->split_device(call, -1, 0);
      return;
    }
    std::vector<int> members;
    for (int other = 0; other < size(); ++other) {
      if (choices[static_cast<std::size_t>(other)].color == *color) members.push_back(other);
    }
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
      return choices[static_cast<std::size_t>(a)].key < choices[static_cast<std::size_t>(b)].key;
    });
    const std::uint64_t number = call.fingerprint().sequence;
    made = subgroup(
        state_->group, members,
        derived_id(state_->group.id, Op::split, number, static_cast<std::uint64_t>(*color)),
        "split" + std::to_string(number) + "." + std::to_string(*color));
    on_device = state_->split_device(call, *color, made->rank);
  });
  if (!made) return std::nullopt;
  return Communicator(state_->child(std::move(*made), std::move(on_device)));
}

std::optional<Communicator> Communicator::group(std::span<const int> ranks,
                                                const Options& options) {
  Fingerprint fingerprint;
  fingerprint.op = Op::group;
  fingerprint.argument = hash_ranks(ranks);
  std::optional<Group> made;
  std::unique_ptr<DeviceCalls> on_device;
  state_->collective(fingerprint, options, [&](Call& call) {
    call.explain({.ranks = ranks});
    check_ranks(call, ranks);
    // In it all ranks compare their lists.
    algorithms::barrier(call.ranks());
    const std::uint64_t number = call.fingerprint().sequence;
    made = subgroup(state_->group, ranks,
                    derived_id(state_->group.id, Op::group, number, hash_ranks(ranks)),
                    "group" + std::to_string(number));
    on_device = state_->split_device(call, made ? 0 : -1, made ? made->rank : 0);
  });
  if (!made) return std::nullopt;
  return Communicator(state_->child(std::move(*made), std::move(on_device)));
}

/// Nothing is sent, so the order in which several groups are made does not matter: the id follows
/// from the list alone, and from how often this very list was used.
Communicator Communicator::group_of_members(std::span<const int> ranks, const Options& options) {
  Fingerprint fingerprint;
  fingerprint.op = Op::group;
  fingerprint.sequence = state_->sequence;
  state_->check_process();
  state_->throw_if_broken();
  const Call::Setting setting{
      *state_->mesh, state_->group, state_->kept, state_->aborted, state_->timeout_of(options),
      options.site};
  Call call(setting, fingerprint);
  call.check_entry();
  check_timeout(call, options.timeout);
  check_ranks(call, ranks);
  require(call, std::find(ranks.begin(), ranks.end(), rank()) != ranks.end(), [&] {
    return std::string("this rank is not in the list; only the members call group_of_members");
  });
  const std::uint64_t number = ++state_->member_groups[{ranks.begin(), ranks.end()}];
  // An operation that makes no groups keeps the id apart from those of group().
  const std::uint64_t id = derived_id(state_->group.id, Op::barrier, number, hash_ranks(ranks));
  auto made = subgroup(state_->group, ranks, id,
                       "members" + std::to_string(number) + "(" + list_text(ranks) + ")");
  return Communicator(state_->child(std::move(*made)));
}

Communicator Communicator::duplicate(const Options& options) {
  Fingerprint fingerprint;
  fingerprint.op = Op::duplicate;
  Group made = state_->group;
  std::unique_ptr<DeviceCalls> on_device;
  state_->collective(fingerprint, options, [&](Call& call) {
    algorithms::barrier(call.ranks());
    const std::uint64_t number = call.fingerprint().sequence;
    made.id = derived_id(state_->group.id, Op::duplicate, number, 0);
    made.name += "/duplicate" + std::to_string(number);
    on_device = state_->split_device(call, 0, rank());
  });
  return Communicator(state_->child(std::move(made), std::move(on_device)));
}

}  // namespace dlaunch
