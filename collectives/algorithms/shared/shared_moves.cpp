#include "collectives/algorithms/select/put.hpp"
#include "collectives/algorithms/select/ways.hpp"
#include "collectives/algorithms/shared/shared.hpp"
#include "collectives/algorithms/shared/shared_sources.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace dlaunch::algorithms::shared {
namespace {

using transport::Op;

/// The number of chunks; at least one, so that the ranks compare their calls.
std::size_t chunks_of(std::size_t bytes, std::size_t each) {
  return std::max<std::size_t>((bytes + each - 1) / each, 1);
}

/// The number of `size` bytes that lie in the chunk that begins at `begin`.
std::size_t within(std::size_t size, std::size_t begin, std::size_t chunk) {
  return std::min(chunk, size - std::min(size, begin));
}

/// A slot holds a piece for each member, of whole cache lines.
std::size_t piece_bytes(const ShmGroup& shm) {
  return ShmGroup::slot_bytes / static_cast<std::size_t>(shm.size()) / 64 * 64;
}

std::vector<std::size_t> sizes_of(const Offsets& parts) {
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < parts.count(); ++i) sizes.push_back(parts[i + 1] - parts[i]);
  return sizes;
}

}  // namespace

std::size_t agree_on_longest(ShmGroup& shm, std::span<const std::size_t> gives,
                             std::span<const std::optional<std::size_t>> takes) {
  const auto entry = [](const std::byte* table, int index) {
    std::uint64_t value = 0;
    std::memcpy(&value, table + static_cast<std::size_t>(index) * sizeof value, sizeof value);
    return value;
  };
  shm.open();
  std::uint64_t longest = 0;
  for (std::size_t member = 0; member < gives.size(); ++member) {
    const std::uint64_t bytes = gives[member];
    longest = std::max(longest, bytes);
    std::memcpy(shm.slot() + member * sizeof bytes, &bytes, sizeof bytes);
  }
  std::memcpy(shm.payload(), &longest, sizeof longest);
  shm.publish();
  shm.wait_all();
  for (int member = 0; member < shm.size(); ++member) {
    if (member == shm.rank()) continue;
    longest = std::max(longest, entry(shm.payload_of(member), 0));
    const std::uint64_t given = entry(shm.slot_of(member), shm.rank());
    const auto& taken = takes[static_cast<std::size_t>(member)];
    if (taken && given != *taken) shm.wait_policy().differ(member, given, *taken);
  }
  return longest;
}

void barrier(ShmGroup& shm) {
  shm.open();
  shm.publish();
  shm.wait_all();
}

/// Waits until all have read buffers in place, so that their owners may change them again.
static void give_back(ShmGroup& shm, const Sources& sources) {
  if (sources.any()) barrier(shm);
}

namespace {

/// The data fits into the root's flag line.
[[gnu::always_inline]] inline void broadcast_in_line(ShmGroup& shm, std::span<std::byte> data,
                                                     int root) {
  const bool is_root = shm.rank() == root;
  shm.open_ahead();
  if (is_root) put(shm.payload(), data.data(), data.size());
  shm.publish();
  if (is_root) return;
  shm.wait(root);
  put(data.data(), shm.payload_of(root), data.size());
}

void broadcast_through_slots(ShmGroup& shm, std::span<std::byte> data, int root) {
  const bool is_root = shm.rank() == root;
  Sources sources(shm);
  const std::size_t chunks = chunks_of(data.size(), chunk_bytes);
  for (std::size_t k = 0; k < chunks; ++k) {
    const std::size_t begin = k * chunk_bytes;
    const std::size_t bytes = within(data.size(), begin, chunk_bytes);
    shm.open();
    const bool in_place = k == 0 && is_root && sources.offer(data.data(), data.size());
    if (is_root && !in_place) shm.put(shm.slot(), data.data() + begin, bytes);
    shm.publish();
    // A call of several steps begins only when all are in it; otherwise a rank in another call
    // could be some steps away when this is noticed.
    if (k == 0 && chunks > 1) {
      shm.wait_all();
    } else if (!is_root) {
      shm.wait(root);
    }
    if (k == 0) {
      const std::byte* direct = is_root ? sources.of(root) : sources.learn(root);
      if (direct != nullptr) {
        if (!is_root) put(data.data(), direct, data.size());
        return barrier(shm);
      }
    }
    if (!is_root) put(data.data() + begin, shm.slot_of(root), bytes);
  }
}

/// All fit into the flag lines.
[[gnu::always_inline]] inline void all_gather_in_line(ShmGroup& shm, const RankParts& data) {
  const int me = shm.rank();
  shm.open();
  put(shm.payload(), data.begin(me), data.size(me));
  shm.publish();
  for (int member = 0; member < shm.size(); ++member) {
    if (member == me) continue;
    shm.wait(member);
    put(data.begin(member), shm.payload_of(member), data.size(member));
  }
}

void all_gather_through_slots(ShmGroup& shm, const RankParts& data) {
  const int me = shm.rank(), n = shm.size();
  const std::size_t longest = data.offsets().longest();
  const bool offers = pays_to_offer(Op::all_gather, longest, shm);
  const std::byte* mine = data.begin(me);
  Sources sources(shm);
  const std::size_t chunks = chunks_of(longest, chunk_bytes);
  for (std::size_t k = 0; k < chunks; ++k) {
    const std::size_t begin = k * chunk_bytes;
    const auto piece = [&](int member) { return within(data.size(member), begin, chunk_bytes); };
    shm.open();
    if (k == 0 && offers) sources.offer(mine, data.size(me));
    const bool in_place = offers && sources.of(me) != nullptr;
    if (!in_place) shm.put(shm.slot(), mine + begin, piece(me));
    shm.publish();
    for (int i = 1; i < n; ++i) {
      const int member = (me + i) % n;
      shm.wait(member);
      std::byte* to = data.begin(member) + begin;
      if (k == 0 && offers) sources.learn(member);
      if (offers && sources.of(member) != nullptr) {
        // The first step delivers the whole part.
        if (k == 0) put(to, sources.of(member), data.size(member));
      } else {
        put(to, shm.slot_of(member), piece(member));
      }
    }
    if (offers && sources.all()) break;
  }
  give_back(shm, sources);
}

}  // namespace

void broadcast(ShmGroup& shm, std::span<std::byte> data, int root) {
  static constexpr Way<Shared, decltype(broadcast_through_slots)> ways[] = {
      {Shared::flag_line, broadcast_in_line}, {Shared::slots, broadcast_through_slots}};
  static_assert(is_whole(ways, Op::broadcast));
  const Shared how = serving(Op::broadcast, data.size(), shm);
  if (how == Shared::flag_line) return broadcast_in_line(shm, data, root);
  way_of(ways, how)(shm, data, root);
}

void all_gather(ShmGroup& shm, const RankParts& data) {
  static constexpr Way<Shared, decltype(all_gather_through_slots)> ways[] = {
      {Shared::flag_line, all_gather_in_line}, {Shared::slots, all_gather_through_slots}};
  static_assert(is_whole(ways, Op::all_gather));
  const Shared how = serving(Op::all_gather, data.offsets().longest(), shm);
  if (how == Shared::flag_line) return all_gather_in_line(shm, data);
  way_of(ways, how)(shm, data);
}

void reduce_scatter(ShmGroup& shm, const ConstRankParts& in, std::byte* out,
                    const Reducer& reducer) {
  const int me = shm.rank(), n = shm.size();
  const std::size_t room = reducer.whole(piece_bytes(shm));
  const std::size_t longest = in.offsets().longest();
  const std::size_t chunks = chunks_of(longest, room);
  const bool offers = pays_to_offer(Op::reduce_scatter, longest, shm);
  Sources sources(shm);
  const auto inputs = shm.inputs();
  for (std::size_t k = 0; k < chunks; ++k) {
    const std::size_t begin = k * room;
    const auto piece = [&](int member) { return within(in.size(member), begin, room); };
    const auto place = [&](int member) { return static_cast<std::size_t>(member) * room; };
    shm.open();
    // The others can find their parts only if they lie in one buffer.
    if (k == 0 && offers && in.are_together()) {
      sources.offer(in.begin(0), in.bytes());
    } else if (k == 0 && offers) {
      sources.offer_nothing();
    }
    const bool in_place = offers && sources.of(me) != nullptr;
    for (int member = 0; member < n && !in_place; ++member) {
      if (member == me) continue;
      shm.put(shm.slot() + place(member), in.begin(member) + begin, piece(member));
    }
    shm.publish();
    for (int member = 0; member < n; ++member) {
      const std::byte*& input = inputs[static_cast<std::size_t>(member)];
      if (member == me) {
        input = in.begin(me) + begin;
        continue;
      }
      shm.wait(member);
      if (k == 0 && offers) sources.learn(member);
      const std::byte* source = offers ? sources.of(member) : nullptr;
      input = source != nullptr ? source + begin_of_part(in.offsets(), me) + begin
                                : shm.slot_of(member) + place(me);
    }
    const bool whole = offers && sources.all();
    const std::size_t bytes = whole ? in.size(me) : piece(me);
    reducer(inputs, out + begin, bytes / reducer.element_bytes());
    if (whole) break;
  }
  give_back(shm, sources);
}

void gather(ShmGroup& shm, BytesView mine, const RankParts& all, int root, Parts how) {
  const int me = shm.rank(), n = shm.size();
  std::size_t longest = mine.size();
  if (how == Parts::differing) {
    std::vector<std::size_t> gives(static_cast<std::size_t>(n));
    std::vector<std::optional<std::size_t>> takes(static_cast<std::size_t>(n));
    gives[static_cast<std::size_t>(root)] = mine.size();
    if (me == root) {
      for (int member = 0; member < n; ++member) {
        takes[static_cast<std::size_t>(member)] = all.size(member);
      }
    }
    longest = agree_on_longest(shm, gives, takes);
  }
  if (me == root) put(all.begin(me), mine.data(), mine.size());
  const std::size_t chunks = chunks_of(longest, chunk_bytes);
  for (std::size_t k = 0; k < chunks; ++k) {
    const std::size_t begin = k * chunk_bytes;
    shm.open();
    if (me != root) {
      const std::size_t bytes = within(mine.size(), begin, chunk_bytes);
      shm.put(shm.slot(), mine.data() + std::min(begin, mine.size()), bytes);
    }
    shm.publish();
    if (me != root) {
      if (k == 0 && chunks > 1) shm.wait_all();
      continue;
    }
    for (int i = 1; i < n; ++i) {
      const int member = (me + i) % n;
      shm.wait(member);
      put(all.begin(member) + begin, shm.slot_of(member),
          within(all.size(member), begin, chunk_bytes));
    }
  }
}

void scatter(ShmGroup& shm, const ConstRankParts& all, std::span<std::byte> mine, int root,
             Parts how) {
  const int me = shm.rank(), n = shm.size();
  std::size_t longest = mine.size();
  if (how == Parts::differing) {
    std::vector<std::size_t> gives(static_cast<std::size_t>(n));
    std::vector<std::optional<std::size_t>> takes(static_cast<std::size_t>(n));
    if (me == root) gives = sizes_of(all.offsets());
    takes[static_cast<std::size_t>(root)] = mine.size();
    longest = agree_on_longest(shm, gives, takes);
  }
  if (me == root) put(mine.data(), all.begin(me), mine.size());
  const std::size_t room = piece_bytes(shm);
  const std::size_t chunks = chunks_of(longest, room);
  for (std::size_t k = 0; k < chunks; ++k) {
    const std::size_t begin = k * room;
    shm.open();
    if (me == root) {
      for (int member = 0; member < n; ++member) {
        if (member == me) continue;
        shm.put(shm.slot() + static_cast<std::size_t>(member) * room, all.begin(member) + begin,
                within(all.size(member), begin, room));
      }
    }
    shm.publish();
    if (k == 0 && chunks > 1) {
      shm.wait_all();
    } else if (me != root) {
      shm.wait(root);
    }
    if (me == root) continue;
    put(mine.data() + std::min(begin, mine.size()),
        shm.slot_of(root) + static_cast<std::size_t>(me) * room, within(mine.size(), begin, room));
  }
}

void all_to_all(ShmGroup& shm, const ConstRankParts& in, const RankParts& out, Parts how) {
  const int me = shm.rank(), n = shm.size();
  std::size_t longest = in.offsets().longest();
  if (how == Parts::differing) {
    std::vector<std::optional<std::size_t>> takes;
    for (const std::size_t bytes : sizes_of(out.offsets())) takes.emplace_back(bytes);
    longest = agree_on_longest(shm, sizes_of(in.offsets()), takes);
  }
  put(out.begin(me), in.begin(me), in.size(me));
  // Another rank's part for this one has a known place in its buffer only if all parts are equal.
  const bool offers = how == Parts::equal && pays_to_offer(Op::all_to_all, longest, shm);
  Sources sources(shm);
  const std::size_t room = piece_bytes(shm);
  const std::size_t chunks = chunks_of(longest, room);
  for (std::size_t k = 0; k < chunks; ++k) {
    const std::size_t begin = k * room;
    shm.open();
    if (k == 0 && offers) sources.offer(in.begin(0), in.bytes());
    const bool in_place = offers && sources.of(me) != nullptr;
    for (int member = 0; member < n && !in_place; ++member) {
      if (member == me) continue;
      shm.put(shm.slot() + static_cast<std::size_t>(member) * room, in.begin(member) + begin,
              within(in.size(member), begin, room));
    }
    shm.publish();
    for (int i = 1; i < n; ++i) {
      const int member = (me + i) % n;
      shm.wait(member);
      std::byte* to = out.begin(member) + begin;
      if (k == 0 && offers) sources.learn(member);
      if (offers && sources.of(member) != nullptr) {
        // The first step delivers the whole part.
        if (k == 0) put(to, sources.of(member) + begin_of_part(in.offsets(), me), longest);
      } else {
        put(to, shm.slot_of(member) + static_cast<std::size_t>(me) * room,
            within(out.size(member), begin, room));
      }
    }
    if (offers && sources.all()) break;
  }
  give_back(shm, sources);
}

}  // namespace dlaunch::algorithms::shared
