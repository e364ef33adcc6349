#include "collectives/form_team.hpp"

#include <array>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace dlaunch {
namespace {

using transport::Team;

/// In place of a block: some rank has not mapped the segment.
constexpr std::uint64_t no_team = ~std::uint64_t{0};

std::uint64_t key_of(const transport::Links& links, const Group& group) {
  const std::array<std::uint64_t, 2> parts{links.generation(), group.id};
  return transport::hash_bytes(parts.data(), sizeof parts) | 1;
}

/// nullopt: not known yet.
std::optional<bool> is_attached(transport::Links& links, Segment& segment, int local,
                                int world_rank) {
  if (segment.rank(local).attached.load() != 0) return true;
  const auto location = transport::find_location(links.store(), world_rank);
  // It announces itself after it has attached.
  if (location && segment.rank(local).attached.load() == 0) return false;
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Team> form_team(Call& call, transport::Links& links, const Group& group) {
  const auto& segment = links.segment();
  if (!segment || group.size() < 2) return nullptr;
  std::vector<int> locals;
  for (const int world_rank : group.world_ranks) {
    locals.push_back(segment->local_of(world_rank));
    if (locals.back() < 0) return nullptr;
  }
  Doorbell& bell = *links.bell();
  const auto look = [&](int from, const std::function<bool()>& ready) {
    call.look_until(
        [&] {
          bell.lie_down();
          return ready();
        },
        from);
    const auto lock = links.lock();
    links.get_up();
  };
  RankBlock& leader = segment->rank(locals[0]);
  const std::uint64_t key = key_of(links, group);
  std::uint64_t block = no_team;
  if (group.rank == 0) {
    bool all = true;
    bool with_remote_barriers =
        segment->rank(locals[0]).attached == RankBlock::with_remote_barriers;
    for (int rank = 1; rank < group.size() && all; ++rank) {
      std::optional<bool> attached;
      look(rank, [&] {
        attached = is_attached(links, *segment, locals[static_cast<std::size_t>(rank)],
                               group.world_rank(rank));
        return attached.has_value();
      });
      all = *attached;
      with_remote_barriers =
          with_remote_barriers && segment->rank(locals[static_cast<std::size_t>(rank)]).attached ==
                                      RankBlock::with_remote_barriers;
    }
    if (all) {
      block = Team::make_block(*segment, locals[0], group.size(), with_remote_barriers);
    }
    // Room comes when those have read who were told before.
    look(1, [&] { return leader.post(key, block, static_cast<std::uint32_t>(group.size() - 1)); });
    for (const int local : locals) bell.ring_if_asleep(local);
  } else {
    look(0, [&] {
      const auto told = leader.read(key);
      if (told) block = *told;
      return told.has_value();
    });
  }
  if (block == no_team) return nullptr;
  return std::make_unique<Team>(segment, links.bell(), std::move(locals), group.rank, block);
}

}  // namespace dlaunch
