// Every algorithm with every count and number of ranks, and around every size at which another
// takes over. Ranks are threads over a mesh in memory.
#include "collectives/algorithms/algorithms.hpp"

#include "collectives/algorithms/messages/messages.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/memory_mesh.hpp"
#include "tests/support/outcomes.hpp"
#include "tests/support/scalar_fold.hpp"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::algorithms;
using dlaunch::testing::Copying;
using dlaunch::testing::require;
using dlaunch::testing::run_meshes;
using dlaunch::testing::scalar_fold;
using transport::Op;

namespace {

using testing::is_full;

using Bytes = std::vector<std::byte>;

std::vector<int> sizes() {
  return is_full() ? std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 20}
                   : std::vector{1, 2, 3, 5, 8, 9, 17};
}

/// Numbers that round when they are added.
template <class T>
std::vector<T> values(int rank, std::size_t count) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    all[i] =
        static_cast<T>(1.0f / static_cast<float>(i % 977 + 1 + 7 * static_cast<std::size_t>(rank)));
  }
  return all;
}
template <>
std::vector<std::int32_t> values(int rank, std::size_t count) {
  std::vector<std::int32_t> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<std::int32_t>(i * 1000003) ^ rank;
  return all;
}
template <>
std::vector<std::uint8_t> values(int rank, std::size_t count) {
  std::vector<std::uint8_t> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = static_cast<std::uint8_t>(i * 31 + static_cast<std::size_t>(rank));
  return all;
}

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& all) {
  return {reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(T)};
}

template <class T>
std::vector<T> folded(const Reduction& reduction, int ranks, std::size_t count) {
  std::vector<std::vector<T>> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(values<T>(rank, count));
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<T> column;
    for (const auto& each : all) column.push_back(each[i]);
    result[i] = scalar_fold<T>(reduction, column);
  }
  return result;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// All ways to reduce `count` elements.
template <class T>
void reductions(Mesh& mesh, const Reduction& reduction, const std::vector<T>& wanted) {
  const int n = mesh.size(), me = mesh.rank();
  const std::size_t count = wanted.size();
  const Reducer fold(reduction, dtype_of<T>::value, true);
  const auto all_reduces = [&](const char* name, const auto& algorithm) {
    auto x = values<T>(me, count);
    algorithm(mesh, bytes_of(x), fold);
    require(same(x, wanted), std::string("all_reduce, ") + name);
  };
  using Span = std::span<std::byte>;
  all_reduces("chosen", [](Mesh& m, Span x, const Reducer& f) { all_reduce(m, x, f); });
  all_reduces("in parts", [](Mesh& m, Span x, const Reducer& f) { all_reduce_in_parts(m, x, f); });
  all_reduces("Bruck", [](Mesh& m, Span x, const Reducer& f) { all_reduce_bruck(m, x, f); });
  if (n == 2) {
    all_reduces("exchange",
                [](Mesh& m, Span x, const Reducer& f) { all_reduce_exchange(m, x, f); });
  }
  if (fold.freedom() == Freedom::any) {
    all_reduces("ring", [](Mesh& m, Span x, const Reducer& f) { all_reduce_ring(m, x, f); });
    all_reduces("halving", [](Mesh& m, Span x, const Reducer& f) { all_reduce_halving(m, x, f); });
  }
  const int root = static_cast<int>(count) % n;
  const auto reduces = [&](const char* name, const auto& algorithm) {
    auto in = values<T>(me, count);
    std::vector<T> out(count);
    algorithm(mesh, bytes_of(in), reinterpret_cast<std::byte*>(out.data()), root, fold);
    require(me != root || same(out, wanted), std::string("reduce, ") + name);
    require(same(in, values<T>(me, count)), std::string("the input of reduce, ") + name);
    // In place.
    algorithm(mesh, bytes_of(in), reinterpret_cast<std::byte*>(in.data()), root, fold);
    require(me != root || same(in, wanted), std::string("reduce in place, ") + name);
  };
  using Out = std::byte*;
  reduces("chosen", [](Mesh& m, Span x, Out o, int r, const Reducer& f) { reduce(m, x, o, r, f); });
  reduces("tree",
          [](Mesh& m, Span x, Out o, int r, const Reducer& f) { reduce_tree(m, x, o, r, f); });
  reduces("in parts",
          [](Mesh& m, Span x, Out o, int r, const Reducer& f) { reduce_in_parts(m, x, o, r, f); });

  // Parts of differing length, some empty.
  std::vector<std::size_t> counts(static_cast<std::size_t>(n), 0);
  std::size_t left = count;
  for (int rank = n - 1; rank > 0; --rank) {
    counts[static_cast<std::size_t>(rank)] = rank % 3 == 1 ? 0 : left / 2;
    left -= counts[static_cast<std::size_t>(rank)];
  }
  counts[0] = left;
  const Offsets parts = parts_of(counts, sizeof(T));
  auto in = values<T>(me, count);
  const auto r = static_cast<std::size_t>(me);
  std::byte* mine = bytes_of(in).data() + parts[r];
  reduce_scatter(mesh, {bytes_of(in).data(), parts}, mine, fold);
  const auto* reference = reinterpret_cast<const std::byte*>(wanted.data()) + parts[r];
  require(counts[r] == 0 || std::memcmp(mine, reference, counts[r] * sizeof(T)) == 0,
          "reduce_scatter in place");
}

Bytes pattern(int rank, std::size_t bytes) {
  auto x = values<std::uint8_t>(rank, bytes);
  return Bytes(bytes_of(x).begin(), bytes_of(x).end());
}

void put(Bytes& to, std::size_t at, const Bytes& from) {
  std::copy(from.begin(), from.end(), to.begin() + static_cast<std::ptrdiff_t>(at));
}

/// All ways to move `each` bytes.
void moves(Mesh& mesh, std::size_t each) {
  const int n = mesh.size(), me = mesh.rank();
  const auto ranks = static_cast<std::size_t>(n), r = static_cast<std::size_t>(me);
  const int root = static_cast<int>(each + 1) % n;
  for (const auto& [name, algorithm] :
       std::vector<std::pair<const char*, decltype(&broadcast_tree)>>{
           {"chosen", [](Mesh&m, std::span<std::byte> x, int from) { broadcast(m, x, from); }},
           {"tree", &broadcast_tree},
           {"scatter", &broadcast_scatter}}) {
    Bytes x = pattern(me, each);
    algorithm(mesh, x, root);
    require(x == pattern(root, each), std::string("broadcast, ") + name);
  }
  Bytes everything(ranks * each);
  for (int rank = 0; rank < n; ++rank) {
    put(everything, static_cast<std::size_t>(rank) * each, pattern(rank, each));
  }
  const Offsets parts(n, each);
  const auto gathers = [&](const char* name, const auto& algorithm) {
    Bytes all(ranks * each);
    put(all, r * each, pattern(me, each));
    algorithm(all.data());
    require(all == everything, std::string("all_gather, ") + name);
  };
  gathers("chosen", [&](std::byte* x) { all_gather(mesh, {x, parts}); });
  gathers("ring", [&](std::byte* x) { all_gather_ring(mesh, {x, parts}); });
  gathers("Bruck", [&](std::byte* x) { all_gather_bruck(mesh, {x, parts}); });

  const auto to_root = [&](const char* name, const auto& algorithm) {
    Bytes all(me == root ? ranks * each : 0);
    const Bytes mine = pattern(me, each);
    algorithm(mine, all.data());
    require(me != root || all == everything, std::string("gather, ") + name);
  };
  to_root("chosen", [&](BytesView x, std::byte* all) { gather(mesh, x, all, root); });
  to_root("tree", [&](BytesView x, std::byte* all) { gather_tree(mesh, x, all, root); });
  to_root("direct", [&](BytesView x, std::byte* all) {
    gather_direct(mesh, x, {all, parts}, root);
  });
  const auto from_root = [&](const char* name, const auto& algorithm) {
    Bytes mine(each);
    algorithm(me == root ? everything.data() : nullptr, std::span(mine));
    require(mine == pattern(me, each), std::string("scatter, ") + name);
  };
  using Mine = std::span<std::byte>;
  from_root("chosen", [&](const std::byte* all, Mine x) { scatter(mesh, all, x, root); });
  from_root("tree", [&](const std::byte* all, Mine x) { scatter_tree(mesh, all, x, root); });
  from_root("direct", [&](const std::byte* all, Mine x) {
    scatter_direct(mesh, {all, parts}, x, root);
  });

  // From rank i to rank j goes the pattern of i * n + j.
  Bytes in(ranks * each), wanted(ranks * each);
  for (int rank = 0; rank < n; ++rank) {
    put(in, static_cast<std::size_t>(rank) * each, pattern(me * n + rank, each));
    put(wanted, static_cast<std::size_t>(rank) * each, pattern(rank * n + me, each));
  }
  const auto exchanges = [&](const char* name, const auto& algorithm) {
    Bytes out(ranks * each);
    algorithm(out.data());
    require(out == wanted, std::string("all_to_all, ") + name);
  };
  exchanges("chosen", [&](std::byte* out) { all_to_all(mesh, in.data(), out, each); });
  exchanges("Bruck", [&](std::byte* out) { all_to_all_bruck(mesh, in.data(), out, each); });
  exchanges("direct", [&](std::byte* out) {
    all_to_all_direct(mesh, {in.data(), parts}, {out, parts});
  });
}

/// Sizes just below, at and above each limit of the table for so many ranks.
std::vector<std::size_t> limits(Op op, int ranks) {
  std::set<std::size_t> found;
  for (const Row& row : built_in_table().rows()) {
    const std::size_t limit = row.limit(ranks);
    if (row.op != op || row.choice.algorithm.family() == Family::shared ||
        limit > (std::size_t{1} << 22))
      continue;
    for (const std::size_t bytes : {limit - 1, limit, limit + 1}) found.insert(bytes);
  }
  return {found.begin(), found.end()};
}

void check(int size, Copying copying, const std::function<void(Mesh&)>& body) {
  const std::string error = run_meshes(size, copying, body);
  CHECK_MESSAGE(error.empty(), error << " (" << size << " ranks)");
}

template <class T>
void check_reductions(const Reduction& reduction, std::size_t count) {
  for (const int size : sizes()) {
    const auto wanted = folded<T>(reduction, size, count);
    const auto copying = count % 2 == 0 ? Copying::at_once : Copying::late;
    check(size, copying, [&](Mesh& mesh) { reductions<T>(mesh, reduction, wanted); });
  }
}

}  // namespace

TEST_CASE("every algorithm that reduces gives the bits of the definition, counts 0 to 33") {
  const std::size_t step = is_full() ? 1 : 4;
  for (std::size_t count = 0; count <= 33; count += count < 4 ? 1 : step) {
    CAPTURE(count);
    check_reductions<float>(ReduceOp::sum, count);
    check_reductions<float>(Reduction(ReduceOp::mean).canonical(), count);
    check_reductions<float16>(ReduceOp::sum, count);
    check_reductions<bfloat16>(ReduceOp::product, count);
    check_reductions<double>(Reduction::premul_sum(0.1), count);
    check_reductions<std::int32_t>(ReduceOp::max, count);
    check_reductions<std::uint8_t>(ReduceOp::bxor, count);
    check_reductions<std::uint8_t>(ReduceOp::lxor, count);
  }
}

namespace {

/// Reductions of floats in any order: near the definition, and the same bits on all ranks.
template <class T>
void check_any_order(const Reduction& reduction, int size, std::size_t count) {
  using Algorithm = void (*)(Mesh&, std::span<std::byte>, const Reducer&);
  const auto wanted = folded<T>(reduction, size, count);
  for (const auto& each : std::vector<std::pair<const char*, Algorithm>>{
           {"chosen", [](Mesh&m, std::span<std::byte> x, const Reducer&f) { all_reduce(m, x, f); }},
           {"ring", &all_reduce_ring},
           {"halving", &all_reduce_halving}}) {
    const char* const name = each.first;
    const Algorithm algorithm = each.second;
    std::vector<std::vector<T>> results(static_cast<std::size_t>(size));
    const std::string error = run_meshes(size, Copying::late, [&](Mesh& mesh) {
      auto& x = results[static_cast<std::size_t>(mesh.rank())];
      x = values<T>(mesh.rank(), count);
      algorithm(mesh, bytes_of(x), Reducer(reduction, dtype_of<T>::value, false));
    });
    CHECK_MESSAGE(error.empty(), error << " (" << name << ", " << size << " ranks)");
    for (const auto& result : results) CHECK(same(result, results[0]));
    int wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double got = static_cast<double>(static_cast<float>(results[0][i]));
      const double near = static_cast<double>(static_cast<float>(wanted[i]));
      // A last bit of f16 or bf16, some of f32 and f64.
      const double allowed = sizeof(T) == 2 ? 0.01 : 1e-5;
      wrong += std::abs(got - near) > allowed * std::abs(near);
    }
    CHECK_MESSAGE(wrong == 0, name << ", " << size << " ranks, " << count << " elements");
  }
}

}  // namespace

TEST_CASE("floats folded in any order") {
  for (const int size : sizes()) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
      check_any_order<float>(Reduction(ReduceOp::sum).any_order(), size, count);
      check_any_order<float>(Reduction(ReduceOp::mean).any_order(), size, count);
      check_any_order<bfloat16>(Reduction(ReduceOp::mean).any_order(), size, count);
      check_any_order<float16>(Reduction(ReduceOp::sum).any_order(), size, count);
      check_any_order<double>(Reduction::premul_sum(0.1).any_order(), size, count);
    }
  }
}

TEST_CASE("every algorithm that moves bytes, 0 to 33") {
  for (std::size_t each = 0; each <= 33; ++each) {
    CAPTURE(each);
    for (const int size : sizes()) {
      for (const Copying copying : {Copying::at_once, Copying::late}) {
        check(size, copying, [&](Mesh& mesh) {
          moves(mesh, each);
          barrier(mesh);
        });
      }
    }
  }
}

TEST_CASE("around every size at which another algorithm takes over") {
  for (const int size : {2, 3, 5, 8, 17}) {
    CAPTURE(size);
    for (const Op op : {Op::all_reduce, Op::reduce}) {
      for (const std::size_t bytes : limits(op, size)) {
        CAPTURE(bytes);
        const auto wanted = folded<std::uint8_t>(ReduceOp::sum, size, bytes);
        check(size, Copying::at_once,
              [&](Mesh& mesh) { reductions<std::uint8_t>(mesh, ReduceOp::sum, wanted); });
      }
    }
    for (const Op op : {Op::broadcast, Op::all_gather, Op::gather, Op::scatter, Op::all_to_all}) {
      for (const std::size_t bytes : limits(op, size)) {
        CAPTURE(bytes);
        check(size, Copying::late, [&](Mesh& mesh) { moves(mesh, bytes); });
      }
    }
  }
}

TEST_CASE("many chunks") {
  // More than four chunks of 256 KiB for each rank, and not a whole number of them.
  const std::size_t count = (std::size_t{5} << 20) / sizeof(float) + 4321;
  for (const int size : {1, 2, 3, 4}) {
    for (const Copying copying : {Copying::at_once, Copying::late}) {
      const auto wanted = folded<float>(ReduceOp::sum, size, count);
      check(size, copying, [&](Mesh& mesh) { reductions<float>(mesh, ReduceOp::sum, wanted); });
    }
  }
}

TEST_CASE("a fold that throws leaves nothing under way in buffers that are gone") {
  const auto failing = Reduction::custom("failing", [](void*, const void*, std::size_t, DType) {
    throw std::runtime_error("out of ideas");
  });
  for (const std::size_t count : {std::size_t{8}, std::size_t{3} << 20}) {
    for (const int size : {2, 3}) {
      const std::string error = run_meshes(size, Copying::at_once, [&](Mesh& mesh) {
        auto x = values<std::uint8_t>(mesh.rank(), count);
        all_reduce(mesh, bytes_of(x), Reducer(failing, DType::u8, false));
      });
      CHECK_MESSAGE((error == "out of ideas" || error.find("another failed") != std::string::npos),
                    error);
    }
  }
}

TEST_CASE("whatever the table's limits, the bits stay the same") {
  for (const std::size_t most : {std::size_t{0}, std::size_t{100}, unlimited}) {
    Table table;
    for (const Row& row : built_in_table().rows()) {
      if (!row.name.empty()) table.set_limit(row.name, most);
    }
    for (const int size : {2, 3, 5, 9, 17, 65}) {
      for (const std::size_t count : {0UL, 1UL, 33UL, 5000UL}) {
        if (size == 65 && count == 5000 && most == unlimited) continue;  // All of 65 at each of 65.
        CAPTURE(most);
        CAPTURE(count);
        const auto wanted = folded<float>(ReduceOp::sum, size, count);
        const std::string error = run_meshes(
            size, Copying::at_once,
            [&](Mesh& mesh) {
              reductions<float>(mesh, ReduceOp::sum, wanted);
              if (size < 65) moves(mesh, count);
            },
            table);
        CHECK_MESSAGE(error.empty(), error << " (" << size << " ranks)");
      }
    }
  }
}
