#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/algorithms/messages/requests.hpp"
#include "collectives/reduce/partial_reducer.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace dlaunch::algorithms {
namespace {

/// The size of a chunk, which is reduced while the next one arrives.
constexpr std::size_t chunk_bytes = 256u << 10;
/// The same for a scan, in elements, since partials may be longer than elements.
constexpr std::size_t scan_chunk = 16u << 10;

/// This rank's partial results, addressed by places in `data`. They lie there if partials have the
/// elements' type, else in memory of their own.
class Partials {
 public:
  Partials(Mesh& mesh, std::span<std::byte> data, const Reducer& reducer)
      : fold_(reducer), partials_(reducer), ranks_(mesh.size()), begin_(data.data()) {
    if (partials_.is_plain()) return;
    const std::size_t count = data.size() / reducer.element_bytes();
    if (!partials_.fits_in_place()) {
      room_ = mesh.buffer_pool().take(count * partials_.element_bytes());
      begin_ = room_.get();
    }
    const std::array<const std::byte*, 1> alone{data.data()};
    partials_.extend(nullptr, alone, begin_, count);
  }
  /// The partials for the data's bytes from `begin` to `end`.
  std::span<std::byte> of(std::size_t begin, std::size_t end) const {
    return {begin_ + scaled(begin), scaled(end) - scaled(begin)};
  }
  /// The bytes of the partials for so many bytes of data.
  std::size_t scaled(std::size_t bytes) const {
    return bytes / fold_.element_bytes() * partials_.element_bytes();
  }
  void join(const std::byte* left, const std::byte* right, std::span<std::byte> out) const {
    const std::array<const std::byte*, 2> both{left, right};
    partials_.joining()(both, out.data(), out.size() / partials_.element_bytes());
  }
  /// The size of a chunk of partials.
  std::size_t chunk() const { return partials_.joining().whole(chunk_bytes); }
  void finish(std::size_t begin, std::size_t end, std::byte* out) const {
    partials_.finish(of(begin, end).data(), out, (end - begin) / fold_.element_bytes(), ranks_);
  }

 private:
  const Reducer& fold_;
  PartialReducer partials_;
  const int ranks_;
  BufferPool::Buffer room_;
  std::byte* begin_;
};

/// At least once, so that the ranks compare their calls.
template <class Use>
void for_each_chunk(std::span<std::byte> data, std::size_t most, const Use& use) {
  std::size_t begin = 0;
  do {
    const auto chunk = data.subspan(begin, std::min(most, data.size() - begin));
    use(chunk);
    begin += chunk.size();
  } while (begin < data.size());
}

/// Parts go round the ring and are reduced at every rank; each ends at its owner, whole.
void fold_round_ring(Mesh& mesh, const Partials& partials, const Offsets& parts) {
  const int n = mesh.size(), me = mesh.rank();
  const std::size_t most = partials.chunk();
  const auto came = mesh.buffer_pool().take(partials.scaled(parts.longest()));
  const auto part = [&](int distance) {
    const auto index = static_cast<std::size_t>((me - distance + 2 * n) % n);
    return partials.of(parts[index], parts[index + 1]);
  };
  for (int step = 1; step < n; ++step) {
    const auto out = part(step), mine = part(step + 1);
    Requests departures(mesh);
    std::vector<Requests> arrivals;
    for_each_chunk(out, most, [&](auto chunk) { departures.send((me + 1) % n, chunk); });
    for_each_chunk(std::span(came.get(), mine.size()), most, [&](auto chunk) {
      arrivals.emplace_back(mesh);
      arrivals.back().recv((me - 1 + n) % n, chunk);
    });
    std::size_t next = 0;
    for_each_chunk(mine, most, [&](auto chunk) {
      arrivals[next].land();
      partials.join(came.get() + next++ * most, chunk.data(), chunk);
    });
    departures.land();
  }
}

/// Pairs of neighbours, so that a power of two of ranks goes on. `place` is this rank's among them;
/// -1 if it has given its data to the next rank.
struct PowerOfTwo {
  explicit PowerOfTwo(const Mesh& mesh)
      : size(static_cast<int>(std::bit_floor(static_cast<unsigned>(mesh.size())))),
        pairs(mesh.size() - size),
        paired(mesh.rank() < 2 * pairs),
        place(!paired                ? mesh.rank() - pairs
              : mesh.rank() % 2 == 0 ? -1
                                     : mesh.rank() / 2) {}
  int rank_at(int other) const { return other < pairs ? 2 * other + 1 : other + pairs; }

  const int size;
  const int pairs;  ///< In each pair the second rank goes on.
  const bool paired;
  const int place;
};

}  // namespace

void all_reduce_ring(Mesh& mesh, std::span<std::byte> data, const Reducer& reducer) {
  const Offsets parts = even_parts(data.size(), mesh.size(), reducer.element_bytes());
  const auto me = static_cast<std::size_t>(mesh.rank());
  const Partials partials(mesh, data, reducer);
  fold_round_ring(mesh, partials, parts);
  partials.finish(parts[me], parts[me + 1], data.data() + parts[me]);
  all_gather_ring(mesh, {data.data(), parts});
}

void all_reduce_halving(Mesh& mesh, std::span<std::byte> data, const Reducer& reducer) {
  const PowerOfTwo ranks(mesh);
  const Partials partials(mesh, data, reducer);
  const auto all = partials.of(0, data.size());
  const auto came = mesh.buffer_pool().take(ranks.place >= 0 ? all.size() : 0);
  if (ranks.place < 0) {
    mesh.send(mesh.rank() + 1, all);
    return mesh.recv(mesh.rank() + 1, data);
  }
  if (ranks.paired) {
    mesh.recv(mesh.rank() - 1, {came.get(), all.size()});
    partials.join(came.get(), all.data(), all);
  }
  const Offsets parts = even_parts(data.size(), ranks.size, reducer.element_bytes());
  const auto offset = [&](int place) { return parts[static_cast<std::size_t>(place)]; };
  // The range left to reduce here is halved until it is this place's part.
  int first = 0;
  for (int half = ranks.size / 2; half > 0; half /= 2) {
    const bool is_left = (ranks.place & half) == 0;
    const int mine = is_left ? first : first + half, theirs = is_left ? first + half : first;
    const int other = ranks.rank_at(ranks.place ^ half);
    const auto kept = partials.of(offset(mine), offset(mine + half));
    const auto given = partials.of(offset(theirs), offset(theirs + half));
    mesh.exchange(other, given, other, {came.get(), kept.size()});
    partials.join(is_left ? kept.data() : came.get(), is_left ? came.get() : kept.data(), kept);
    first = mine;
  }
  partials.finish(offset(first), offset(first + 1), data.data() + offset(first));
  for (int half = 1; half < ranks.size; half *= 2) {
    const int own = ranks.place & ~(half - 1), theirs = own ^ half;
    const int other = ranks.rank_at(ranks.place ^ half);
    const auto run = [&](int begin) {
      return data.subspan(offset(begin), offset(begin + half) - offset(begin));
    };
    mesh.exchange(other, run(own), other, run(theirs));
  }
  if (ranks.paired) mesh.send(mesh.rank() - 1, data);
}

void scan_chain(Mesh& mesh, BytesView in, std::byte* out, const Reducer& reducer, int ranks) {
  const int me = mesh.rank();
  const bool is_last = me + 1 == mesh.size();
  PartialReducer partials(reducer);
  const std::size_t element = reducer.element_bytes(), partial = partials.element_bytes();
  const std::size_t count = in.size() / element;
  // Memory for an arriving chunk while another is reduced, and for a leaving one.
  const std::size_t room = std::min(scan_chunk, count) * partial;
  const auto memory = mesh.buffer_pool().take(3 * room);
  const std::array<std::byte*, 2> came{memory.get(), memory.get() + room};
  std::byte* const goes = memory.get() + 2 * room;
  const auto size_at = [&](std::size_t begin) { return std::min(scan_chunk, count - begin); };
  Requests arrivals(mesh), departures(mesh);
  if (me > 0 && count > 0) arrivals.recv(me - 1, {came[0], size_at(0) * partial});
  std::size_t turn = 0;
  for (std::size_t begin = 0; begin < count; begin += scan_chunk, ++turn) {
    const std::size_t size = size_at(begin);
    std::byte* const before = me > 0 ? came[turn % 2] : nullptr;
    arrivals.land();
    if (me > 0 && begin + size < count) {
      const std::size_t next = begin + size;
      arrivals.recv(me - 1, {came[(turn + 1) % 2], size_at(next) * partial});
    }
    departures.land();
    const std::array<const std::byte*, 1> own{in.data() + begin * element};
    partials.extend(before, own, goes, size);
    if (!is_last) departures.send(me + 1, {goes, size * partial});
    if (ranks == me + 1) partials.finish(goes, out + begin * element, size, ranks);
    if (ranks == me && me > 0) partials.finish(before, out + begin * element, size, ranks);
  }
  departures.land();
}

}  // namespace dlaunch::algorithms
