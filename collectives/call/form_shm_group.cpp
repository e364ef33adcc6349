#include "collectives/call/form_shm_group.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch {
namespace {

using algorithms::by_node::Nodes;
using transport::ShmGroup;

/// The value in place of a block if some rank has not mapped the segment.
constexpr std::uint64_t no_shm_group = ~std::uint64_t{0};

std::uint64_t key_of(const transport::Links& transport, const Group& group) {
  const std::array<std::uint64_t, 2> parts{transport.generation(), group.id};
  return transport::hash_bytes(parts.data(), sizeof parts) | 1;
}

/// Finds out whether a rank of this node has mapped the segment. A rank that maps it is seen at
/// once. Only the store shows that a rank came and could not map it, so it is asked at growing
/// intervals.
class Attachment {
 public:
  Attachment(transport::Links& transport, Segment& segment, int local, int world_rank)
      : transport_(transport), segment_(segment), local_(local), world_rank_(world_rank) {}

  /// nullopt: not known yet.
  std::optional<bool> look() {
    if (is_attached()) return true;
    const auto now = Clock::now();
    if (now < ask_at_) return std::nullopt;
    ask_at_ = now + pause_;
    pause_ = std::min<Clock::duration>(pause_ * 2, pause_max);
    const auto location = transport::find_location(transport_.store(), world_rank_);
    // A rank announces its location after it has attached.
    if (location && !is_attached()) return false;
    return std::nullopt;
  }

 private:
  static constexpr auto pause_first = std::chrono::milliseconds(1);
  static constexpr auto pause_max = std::chrono::milliseconds(500);

  bool is_attached() { return segment_.rank(local_).attached.load() != 0; }

  transport::Links& transport_;
  Segment& segment_;
  const int local_, world_rank_;
  Clock::time_point ask_at_{};
  Clock::duration pause_ = pause_first;
};

/// Ranks of a group that may have this rank's segment in common.
struct Neighbours {
  Neighbours(Segment& segment, const Group& group) {
    for (int rank = 0; rank < group.size(); ++rank) {
      const int local = segment.local_of(group.world_rank(rank));
      if (local < 0) continue;
      if (rank == group.rank) me = static_cast<int>(ranks.size());
      ranks.push_back(rank);
      locals.push_back(local);
    }
  }
  int size() const { return static_cast<int>(ranks.size()); }
  int rank(int member) const { return ranks[static_cast<std::size_t>(member)]; }
  int local(int member) const { return locals[static_cast<std::size_t>(member)]; }

  std::vector<int> ranks, locals;
  int me = -1;
};

/// The making of one shm group, by all of its members.
class Forming {
 public:
  Forming(Call& call, transport::Links& transport, const Group& group, Neighbours neighbours)
      : call_(call),
        transport_(transport),
        group_(group),
        segment_(*transport.segment()),
        neighbours_(std::move(neighbours)) {}

  /// Null on all members if one has not mapped the segment, or if the segment has no room for an
  /// shm group; the member that makes the group learns by `is_full` which of the two it was.
  std::unique_ptr<ShmGroup> form(bool& is_full) {
    const std::uint64_t block = neighbours_.me == 0 ? make(is_full) : hear();
    if (block == no_shm_group) return nullptr;
    return std::make_unique<ShmGroup>(transport_.segment(), transport_.bell(),
                                      std::move(neighbours_.locals), neighbours_.me, block);
  }

 private:
  RankBlock& leader() { return segment_.rank(neighbours_.local(0)); }
  RankBlock& block_of(int member) { return segment_.rank(neighbours_.local(member)); }

  /// Waits for that member in particular, or for it alone.
  void look(int member, const std::function<bool()>& ready, bool from_it_alone = false) {
    call_.look_until(
        [&] {
          transport_.bell()->lie_down();
          return ready();
        },
        neighbours_.rank(member), from_it_alone);
    const auto lock = transport_.lock();
    transport_.get_up();
  }

  std::uint64_t make(bool& is_full) {
    const auto has_barriers = [&](int member) {
      return block_of(member).attached == RankBlock::with_remote_barriers;
    };
    bool all = true, with_remote_barriers = has_barriers(0);
    for (int member = 1; member < neighbours_.size() && all; ++member) {
      Attachment attachment(transport_, segment_, neighbours_.local(member),
                            group_.world_rank(neighbours_.rank(member)));
      std::optional<bool> attached;
      look(member, [&] { return (attached = attachment.look()).has_value(); });
      all = *attached;
      with_remote_barriers = with_remote_barriers && has_barriers(member);
    }
    std::uint64_t block = no_shm_group;
    if (all) {
      const auto made = ShmGroup::make_block(segment_, neighbours_.local(0), neighbours_.size(),
                                             with_remote_barriers);
      block = made.value_or(no_shm_group);
      is_full = !made;
    }
    // Room comes when the readers of earlier notices have read them.
    const auto readers = static_cast<std::uint32_t>(neighbours_.size() - 1);
    look(1, [&] { return leader().post(key_of(transport_, group_), block, readers); });
    for (const int local : neighbours_.locals) transport_.bell()->ring_if_asleep(local);
    return block;
  }

  std::uint64_t hear() {
    std::uint64_t block = no_shm_group;
    const auto is_told = [&] {
      const auto told = leader().read(key_of(transport_, group_));
      if (told) block = *told;
      return told.has_value();
    };
    look(0, is_told, true);
    return block;
  }

  Call& call_;
  transport::Links& transport_;
  const Group& group_;
  Segment& segment_;
  Neighbours neighbours_;
};

}  // namespace

std::unique_ptr<ShmGroup> form_shm_group(Call& call, transport::Links& transport,
                                         const Group& group) {
  const auto& segment = transport.segment();
  if (!segment || group.size() < 2) return nullptr;
  Neighbours neighbours(*segment, group);
  if (neighbours.size() < group.size()) return nullptr;
  bool is_full = false;
  auto shm = Forming(call, transport, group, std::move(neighbours)).form(is_full);
  if (is_full) {
    throw Error(Errc::internal, "the node's shared memory is full: no room for a group of " +
                                    std::to_string(group.size()) +
                                    " ranks; free shared buffers or groups first");
  }
  return shm;
}

std::unique_ptr<Nodes> form_nodes(Call& call, transport::Links& transport, const Group& group) {
  // Two ranks have an shm group of all, or share nothing.
  if (group.size() < 3) return nullptr;
  std::unique_ptr<ShmGroup> shm;
  std::vector<std::uint64_t> numbers(static_cast<std::size_t>(group.size()));
  auto& mine = numbers[static_cast<std::size_t>(group.rank)];
  if (const auto& segment = transport.segment()) {
    Neighbours neighbours(*segment, group);
    // If all are neighbours, forming an shm group for them has already failed.
    const bool some = neighbours.size() > 1 && neighbours.size() < group.size();
    bool is_full = false;  // Then ranks go on as if they had no memory in common.
    if (some) shm = Forming(call, transport, group, std::move(neighbours)).form(is_full);
    if (shm != nullptr) mine = segment->id() | 1;
  }
  algorithms::all_gather(
      call, {reinterpret_cast<std::byte*>(numbers.data()), {group.size(), sizeof mine}});
  bool any = false;
  for (std::size_t rank = 0; rank < numbers.size(); ++rank) {
    any = any || numbers[rank] != 0;
    // No other rank has this even number.
    if (numbers[rank] == 0) numbers[rank] = 2 * (rank + 1);
  }
  if (!any) return nullptr;
  return std::make_unique<Nodes>(algorithms::Layout(numbers), group.rank, std::move(shm));
}

}  // namespace dlaunch
