#include "collectives/algorithms/select/ways.hpp"
#include "collectives/algorithms/shared/shared.hpp"
#include "collectives/algorithms/shared/shared_sources.hpp"

#include <algorithm>
#include <cstring>

namespace dlaunch::algorithms::shared {
namespace {

using transport::Op;

constexpr std::size_t result_offset = ShmGroup::slot_bytes / 2;
static_assert(chunk_bytes <= result_offset);

/// Between buffers that do not overlap: no call of memmove in the way of the smallest.
void copy_apart(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

/// The contributions: `own` is this rank's, others' are at `at(member)`.
template <class At>
[[gnu::always_inline]] inline std::span<const std::byte* const> collect(ShmGroup& shm,
                                                                        const std::byte* own,
                                                                        At at) {
  const auto inputs = shm.inputs();
  for (int member = 0; member < shm.size(); ++member) {
    inputs[static_cast<std::size_t>(member)] = member == shm.rank() ? own : at(member);
  }
  return inputs;
}

/// Slices, one for each member, in whole elements.
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

/// The data fits into the flag line, so everyone has everything at once.
[[gnu::always_inline]] inline void all_reduce_in_line(ShmGroup& shm, BytesView in, std::byte* out,
                                                      const Reducer& reducer) {
  shm.open();
  copy_apart(shm.payload(), in.data(), in.size());
  shm.publish();
  const auto inputs = collect(shm, in.data(), [&](int member) {
    shm.wait(member);
    return shm.payload_of(member);
  });
  reducer(inputs, out, in.size() / reducer.element_bytes());
}

/// All buffers lie in the segment, and all members are here: everyone reduces its slice from all of
/// them into all of them. The last step keeps everyone until all have written.
void all_reduce_direct(ShmGroup& shm, std::span<std::byte> data, const Sources& sources,
                       const Reducer& reducer) {
  const int me = shm.rank(), n = shm.size();
  const Slices slices(data.size(), n, reducer.element_bytes());
  const std::size_t at = slices.begin(me), bytes = slices.bytes(me);
  const auto inputs =
      collect(shm, data.data() + at, [&](int member) { return sources.of(member) + at; });
  const int next = (me + 1) % n;
  reducer(inputs, data.data() + at, sources.of(next) + at, bytes / reducer.element_bytes());
  for (int i = 2; i < n; ++i) copy_apart(sources.of((me + i) % n) + at, data.data() + at, bytes);
  barrier(shm);
}

/// Everyone puts everything into its slot, a chunk at a time, and reduces all slots. For two ranks
/// this is faster at any size: both find the data in their caches, and no result has to come back.
void all_reduce_one_shot(ShmGroup& shm, BytesView in, std::byte* out, const Reducer& reducer) {
  Sources sources(shm);
  const std::size_t step = reducer.whole(chunk_bytes);
  const bool offers = pays_to_offer(Op::all_reduce, in.size(), shm);
  const auto exchange = [&](BytesView chunk) {
    shm.put(shm.slot(), chunk.data(), chunk.size());
    shm.publish();
    return collect(shm, chunk.data(), [&](int member) {
      shm.wait(member);
      return shm.slot_of(member);
    });
  };
  for (std::size_t begin = 0; begin < in.size(); begin += step) {
    const auto chunk = in.subspan(begin, std::min(step, in.size() - begin));
    shm.open();
    if (begin == 0 && offers) {
      const bool in_place = sources.offer_if(out == in.data(), in);
      if (!in_place) shm.put(shm.slot(), chunk.data(), chunk.size());
      shm.publish();
      shm.wait_all();
      sources.learn_all();
      if (sources.all()) return all_reduce_direct(shm, {out, in.size()}, sources, reducer);
      if (sources.any()) {
        // A rank whose buffer is in the segment would write the result there while others read it,
        // so it gives a copy after all.
        shm.open();
        exchange(chunk);
      } else {
        collect(shm, chunk.data(), [&](int member) { return shm.slot_of(member); });
      }
    } else {
      exchange(chunk);
    }
    reducer(shm.inputs(), out + begin, chunk.size() / reducer.element_bytes());
  }
}

/// Passes chunks through the slots. In each step one chunk goes into the slot, the chunk before it
/// is reduced, and the results of the chunk before that are taken. If a buffer lies in the segment
/// its chunks are read in place: the owner overwrites a chunk only when it takes the results, when
/// all have read it.
class TwoShot {
 public:
  /// `out` is null if no result is wanted, or equals `in`.
  TwoShot(ShmGroup& shm, BytesView in, std::byte* out, const Reducer& reducer)
      : shm_(shm),
        in_(in),
        out_(out),
        fold_(reducer),
        chunk_(reducer.whole(chunk_bytes)),
        sources_(shm) {}

  void run() {
    const std::size_t chunks = (in_.size() + chunk_ - 1) / chunk_;
    shm_.open();
    // A caller with another `out` could change `in` while others read it, so `in` is offered only
    // if both are the same.
    in_place_ = sources_.offer_if(out_ == in_.data(), in_);
    give(0);
    shm_.publish();
    shm_.wait_all();
    sources_.learn_all();
    if (sources_.all()) {
      return all_reduce_direct(shm_, {out_, in_.size()}, sources_, fold_);
    }
    for (std::size_t k = 1; k <= chunks; ++k) {
      shm_.open();
      if (k < chunks) give(k);
      reduce_mine(k - 1);
      if (k >= 2) take(k - 2, [&](int member) { return shm_.earlier_slot_of(member); });
      shm_.publish();
      shm_.wait_all();
    }
    take(chunks - 1, [&](int member) { return shm_.slot_of(member); });
  }

 private:
  Slices slices(std::size_t k) const {
    return {std::min(chunk_, in_.size() - k * chunk_), shm_.size(), fold_.element_bytes()};
  }
  void give(std::size_t k) {
    if (in_place_) return;
    const Slices parts = slices(k);
    for (int member = 0; member < shm_.size(); ++member) {
      if (member == shm_.rank()) continue;
      const std::size_t at = parts.begin(member);
      shm_.put(shm_.slot() + at, in_.data() + k * chunk_ + at, parts.bytes(member));
    }
  }
  void reduce_mine(std::size_t k) {
    const Slices parts = slices(k);
    const std::size_t at = parts.begin(shm_.rank()), bytes = parts.bytes(shm_.rank());
    const std::size_t place = k * chunk_ + at;
    const auto inputs = collect(shm_, in_.data() + place, [&](int member) {
      const std::byte* direct = sources_.of(member);
      return direct != nullptr ? direct + place : shm_.earlier_slot_of(member) + at;
    });
    fold_(inputs, shm_.slot() + result_offset, out_ == nullptr ? nullptr : out_ + place,
          bytes / fold_.element_bytes(), shm_.streams() ? Stores::streamed : Stores::cached);
  }
  template <class SlotOf>
  void take(std::size_t k, SlotOf slot_of) {
    if (out_ == nullptr) return;
    const Slices parts = slices(k);
    for (int member = 0; member < shm_.size(); ++member) {
      if (member == shm_.rank()) continue;
      copy_apart(out_ + k * chunk_ + parts.begin(member), slot_of(member) + result_offset,
                 parts.bytes(member));
    }
  }

  ShmGroup& shm_;
  BytesView in_;
  std::byte* out_;
  const Reducer& fold_;
  const std::size_t chunk_;
  Sources sources_;
  bool in_place_ = false;
};

void reduce_one_shot(ShmGroup& shm, BytesView in, std::byte* out, int root,
                     const Reducer& reducer) {
  const bool is_root = shm.rank() == root;
  shm.open();
  if (!is_root) shm.put(shm.slot(), in.data(), in.size());
  shm.publish();
  if (!is_root) return;
  const auto inputs = collect(shm, in.data(), [&](int member) {
    shm.wait(member);
    return shm.slot_of(member);
  });
  reducer(inputs, out, in.size() / reducer.element_bytes());
}

void reduce_two_shot(ShmGroup& shm, BytesView in, std::byte* out, int root,
                     const Reducer& reducer) {
  TwoShot(shm, in, shm.rank() == root ? out : nullptr, reducer).run();
}

void all_reduce_two_shot(ShmGroup& shm, BytesView in, std::byte* out, const Reducer& reducer) {
  TwoShot(shm, in, out, reducer).run();
}

[[gnu::always_inline]] inline void all_reduce_by_size(ShmGroup& shm, BytesView in, std::byte* out,
                                                      const Reducer& reducer) {
  static constexpr Way<Shared, decltype(all_reduce_one_shot)> ways[] = {
      {Shared::flag_line, all_reduce_in_line},
      {Shared::one_shot, all_reduce_one_shot},
      {Shared::two_shot, all_reduce_two_shot}};
  static_assert(is_whole(ways, Op::all_reduce));
  const Shared how = serving(Op::all_reduce, in.size(), shm);
  if (how == Shared::flag_line) return all_reduce_in_line(shm, in, out, reducer);
  way_of(ways, how)(shm, in, out, reducer);
}

}  // namespace

/// For small calls: one argument less than the next function.
void all_reduce(ShmGroup& shm, std::span<std::byte> data, const Reducer& reducer) {
  all_reduce_by_size(shm, data, data.data(), reducer);
}

void all_reduce(ShmGroup& shm, BytesView in, std::byte* out, const Reducer& reducer) {
  all_reduce_by_size(shm, in, out, reducer);
}

void reduce(ShmGroup& shm, BytesView in, std::byte* out, int root, const Reducer& reducer) {
  static constexpr Way<Shared, decltype(reduce_one_shot)> ways[] = {
      {Shared::one_shot, reduce_one_shot}, {Shared::two_shot, reduce_two_shot}};
  static_assert(is_whole(ways, Op::reduce));
  way_of(ways, serving(Op::reduce, in.size(), shm))(shm, in, out, root, reducer);
}

}  // namespace dlaunch::algorithms::shared
