#include "collectives/algorithms/shared.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace dlaunch::algorithms::shared {
namespace {

/// Up to here everyone reads everything, which takes one synchronisation; above, everyone reduces
/// a slice, which takes two and moves less.
std::size_t one_shot_bytes_max(int members) { return members <= 2 ? 8u << 10 : 4u << 10; }
/// What is in a slot is read by another before it leaves the second-level cache.
constexpr std::size_t chunk_bytes = 128u << 10;
constexpr std::size_t result_offset = Team::slot_bytes / 2;
static_assert(chunk_bytes <= result_offset);

void put(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

/// Contributions at `at(member)`, this rank's being `own`.
template <class At>
std::span<const std::byte* const> collect(Team& team, const std::byte* own, At at) {
  const auto inputs = team.inputs();
  for (int member = 0; member < team.size(); ++member) {
    inputs[static_cast<std::size_t>(member)] = member == team.rank() ? own : at(member);
  }
  return inputs;
}

/// A chunk's slices, one for each member, in whole elements.
struct Slices {
  Slices(std::size_t bytes, int members, std::size_t element_bytes)
      : elements(bytes / element_bytes),
        n(static_cast<std::size_t>(members)),
        size(element_bytes) {}
  std::size_t begin(int member) const {
    return elements * static_cast<std::size_t>(member) / n * size;
  }
  std::size_t bytes(int member) const { return begin(member + 1) - begin(member); }
  std::size_t elements, n, size;
};

/// Everyone has everything: in its line where it fits, else in its slot.
void all_reduce_one_shot(Team& team, std::span<std::byte> data, const Folder& fold) {
  const bool in_line = data.size() <= Team::payload_bytes_max;
  team.open();
  put(in_line ? team.payload() : team.slot(), data.data(), data.size());
  team.publish();
  const auto inputs = collect(team, data.data(), [&](int member) {
    team.wait(member);
    return in_line ? team.payload_of(member) : team.slot_of(member);
  });
  fold(inputs, data.data(), data.size() / fold.element_bytes());
}

/// In a step: the next chunk goes into the slot, the one before is reduced, and the results of the
/// one before that are taken. `out` is null where nothing is wanted, or is `in`.
void reduce_two_shot(Team& team, BytesView in, std::byte* out, const Folder& fold) {
  const int me = team.rank();
  const std::size_t chunk = chunk_bytes;
  const std::size_t chunks = (in.size() + chunk - 1) / chunk;
  const auto bytes_of = [&](std::size_t k) { return std::min(chunk, in.size() - k * chunk); };
  const auto slices_of = [&](std::size_t k) {
    return Slices(bytes_of(k), team.size(), fold.element_bytes());
  };
  const auto give = [&](std::size_t k) {
    const Slices slices = slices_of(k);
    for (int member = 0; member < team.size(); ++member) {
      if (member == me) continue;
      const std::size_t at = slices.begin(member);
      put(team.slot() + at, in.data() + k * chunk + at, slices.bytes(member));
    }
  };
  const auto reduce_mine = [&](std::size_t k) {
    const Slices slices = slices_of(k);
    const std::size_t at = slices.begin(me);
    const auto inputs = collect(team, in.data() + k * chunk + at,
                                [&](int member) { return team.earlier_slot_of(member) + at; });
    std::byte* result = team.slot() + result_offset;
    fold(inputs, result, slices.bytes(me) / fold.element_bytes());
    if (out != nullptr) put(out + k * chunk + at, result, slices.bytes(me));
  };
  const auto take = [&](std::size_t k, auto slot_of) {
    if (out == nullptr) return;
    const Slices slices = slices_of(k);
    for (int member = 0; member < team.size(); ++member) {
      if (member == me) continue;
      const std::size_t at = slices.begin(member);
      put(out + k * chunk + at, slot_of(member) + result_offset, slices.bytes(member));
    }
  };
  for (std::size_t k = 0; k <= chunks; ++k) {
    team.open();
    if (k < chunks) give(k);
    if (k >= 1) reduce_mine(k - 1);
    if (k >= 2) take(k - 2, [&](int member) { return team.earlier_slot_of(member); });
    team.publish();
    team.wait_all();
  }
  take(chunks - 1, [&](int member) { return team.slot_of(member); });
}

}  // namespace

void all_reduce(Team& team, std::span<std::byte> data, const Folder& fold) {
  if (data.size() <= one_shot_bytes_max(team.size())) return all_reduce_one_shot(team, data, fold);
  reduce_two_shot(team, data, data.data(), fold);
}

void reduce(Team& team, BytesView in, std::byte* out, int root, const Folder& fold) {
  const bool is_root = team.rank() == root;
  if (in.size() > one_shot_bytes_max(team.size())) {
    return reduce_two_shot(team, in, is_root ? out : nullptr, fold);
  }
  team.open();
  if (!is_root) put(team.slot(), in.data(), in.size());
  team.publish();
  if (!is_root) return;
  const auto inputs = collect(team, in.data(), [&](int member) {
    team.wait(member);
    return team.slot_of(member);
  });
  fold(inputs, out, in.size() / fold.element_bytes());
}

}  // namespace dlaunch::algorithms::shared
