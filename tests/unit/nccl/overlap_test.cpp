#include "tests/unit/nccl/double_ranks.hpp"

#include <cstddef>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

/// Buffers on a device that overlap are refused, as in host memory, and where a call may work in
/// place it does.
namespace dlaunch::testing {
namespace {

constexpr int size = 3;
constexpr std::size_t each = 4;
constexpr int root = 1;

/// One rank's two buffers, somewhere in the same memory.
struct Buffers {
  TensorView in;
  TensorView out;
};
using Call = std::function<void(Communicator&, const Buffers&)>;

struct Collective {
  const char* name;
  std::size_t in_parts;  ///< Parts of `each` elements.
  std::size_t out_parts;
  Call call;
};

const std::vector<std::size_t> counts(size, each);

const std::vector<Collective> collectives = {
    {"reduce", 1, 1, [](Communicator& comm, const Buffers& b) { comm.reduce(b.in, b.out, root); }},
    {"all_gather", 1, size,
     [](Communicator& comm, const Buffers& b) { comm.all_gather(b.in, b.out); }},
    {"all_gather_v", 1, size,
     [](Communicator& comm, const Buffers& b) { comm.all_gather_v(b.in, b.out, counts); }},
    {"gather", 1, size,
     [](Communicator& comm, const Buffers& b) { comm.gather(b.in, b.out, root); }},
    {"gather_v", 1, size,
     [](Communicator& comm, const Buffers& b) { comm.gather_v(b.in, b.out, counts, root); }},
    {"scatter", size, 1,
     [](Communicator& comm, const Buffers& b) { comm.scatter(b.in, b.out, root); }},
    {"scatter_v", size, 1,
     [](Communicator& comm, const Buffers& b) { comm.scatter_v(b.in, b.out, counts, root); }},
    {"reduce_scatter", size, 1,
     [](Communicator& comm, const Buffers& b) { comm.reduce_scatter(b.in, b.out); }},
    {"reduce_scatter_v", size, 1,
     [](Communicator& comm, const Buffers& b) { comm.reduce_scatter_v(b.in, b.out, counts); }},
    {"all_to_all", size, size,
     [](Communicator& comm, const Buffers& b) { comm.all_to_all(b.in, b.out); }},
    {"all_to_all_v", size, size,
     [](Communicator& comm, const Buffers& b) { comm.all_to_all_v(b.in, counts, b.out, counts); }},
};

/// `in` begins after `in_first` elements of `memory`, `out` after `out_first`.
Buffers within(std::vector<float>& memory, const Collective& collective, std::size_t in_first,
               std::size_t out_first, const Place& place) {
  REQUIRE(in_first + collective.in_parts * each <= memory.size());
  REQUIRE(out_first + collective.out_parts * each <= memory.size());
  const auto at = [&](std::size_t first) -> void* {
    float* const host = memory.data() + first;
    return place.is_host() ? host : cuda_double::device_address(host);
  };
  return {{at(in_first), collective.in_parts * each, DType::f32, place},
          {at(out_first), collective.out_parts * each, DType::f32, place}};
}

std::vector<float> numbers(int rank) {
  std::vector<float> made(2 * size * each);
  std::iota(made.begin(), made.end(), static_cast<float>(100 * rank));
  return made;
}

void check_refused(const Collective& collective, std::size_t in_first, std::size_t out_first) {
  CAPTURE(collective.name);
  CAPTURE(in_first);
  CAPTURE(out_first);
  const auto outcomes = run_device_ranks(size, [&](const World& world) {
    Communicator comm(world);
    auto memory = numbers(comm.rank());
    const Place place{comm.rank()};
    comm.barrier();  // A rank that has not begun when the root fails hears nothing of why.
    collective.call(comm, within(memory, collective, in_first, out_first, place));
  });
  for (int rank = 0; rank < size; ++rank) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    // If the root alone has both, the others are told of it.
    if (rank == root) CHECK_MESSAGE(outcome.mentions("'in' and 'out' overlap"), outcome.text);
    CHECK_MESSAGE((outcome.code == Errc::misuse || outcome.code == Errc::mismatch), outcome.text);
  }
}

TEST_CASE("buffers on a device that overlap by one element, or by a part, are refused") {
  for (const Collective& collective : collectives) {
    check_refused(collective, 1, 0);
    check_refused(collective, 0, 1);
    if (collective.in_parts + collective.out_parts == 2) continue;
    // The part of another rank than the root.
    if (collective.in_parts == 1) check_refused(collective, (root + 1) * each, 0);
    if (collective.out_parts == 1) check_refused(collective, 0, (root + 1) * each);
    if (collective.in_parts == collective.out_parts) check_refused(collective, 0, 0);
  }
}

TEST_CASE("a call on a device that may work in place does, as in host memory") {
  for (const Collective& collective : collectives) {
    if (collective.in_parts == size && collective.out_parts == size) continue;
    CAPTURE(collective.name);
    check_all(run_device_ranks(size, [&](const World& world) {
      Communicator comm(world);
      const auto part = static_cast<std::size_t>(comm.rank()) * each;
      const std::size_t in_first = collective.in_parts < collective.out_parts ? part : 0;
      const std::size_t out_first = collective.out_parts < collective.in_parts ? part : 0;
      auto device = numbers(comm.rank()), host = device;
      collective.call(comm, within(device, collective, in_first, out_first, Place{comm.rank()}));
      collective.call(comm, within(host, collective, in_first, out_first, Place{}));
      CHECK(device == host);
    }));
  }
}

}  // namespace
}  // namespace dlaunch::testing
