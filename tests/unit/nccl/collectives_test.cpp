#include "tests/unit/nccl/double_ranks.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <doctest/doctest.h>

/// Every collective with buffers on a device, against the same with buffers in host memory.
namespace dlaunch::testing {
namespace {

constexpr int root = 1;

template <class T>
std::vector<T> values(int rank, std::size_t count) {
  std::vector<T> made(count);
  for (std::size_t i = 0; i < count; ++i) {
    made[i] =
        static_cast<T>(static_cast<float>((i * 3 + static_cast<std::size_t>(rank) * 5) % 7 + 1));
  }
  return made;
}

template <class T>
void check_equal(const std::vector<T>& on_device, const std::vector<T>& on_host) {
  REQUIRE(on_device.size() == on_host.size());
  bool equal = true;
  for (std::size_t i = 0; i < on_host.size(); ++i) equal = equal && on_device[i] == on_host[i];
  CHECK(equal);
}

template <class T>
void reduce_everywhere(Communicator& comm, const Reduction& reduction,
                       const Options& options = {}) {
  const int me = comm.rank();
  const auto ranks = static_cast<std::size_t>(comm.size());
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{33}}) {
    auto host = values<T>(me, count), device = host;
    comm.all_reduce(host, reduction, options);
    comm.all_reduce(on_device(device, me), reduction, options);
    check_equal(device, host);

    const auto mine = values<T>(me, count);
    std::vector<T> everywhere(count), host_out(count), device_out(count);
    comm.all_reduce_into(on_device(mine, me), on_device(everywhere, me), reduction, options);
    check_equal(everywhere, host);
    comm.reduce(mine, host_out, root, reduction, options);
    comm.reduce(on_device(mine, me), on_device(device_out, me), root, reduction, options);
    check_equal(device_out, host_out);

    const auto all = values<T>(me, count * ranks);
    comm.reduce_scatter(all, host_out, reduction, options);
    comm.reduce_scatter(on_device(all, me), on_device(device_out, me), reduction, options);
    check_equal(device_out, host_out);
  }
  std::vector<std::size_t> counts(ranks);
  std::iota(counts.begin(), counts.end(), std::size_t{0});
  const auto sum = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const auto all = values<T>(me, sum);
  std::vector<T> host_out(counts[static_cast<std::size_t>(me)]), device_out(host_out.size());
  comm.reduce_scatter_v(all, host_out, counts, reduction, options);
  comm.reduce_scatter_v(on_device(all, me), on_device(device_out, me), counts, reduction, options);
  check_equal(device_out, host_out);
}

template <class T>
void reduce_by_all(Communicator& comm) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max}) {
    reduce_everywhere<T>(comm, op);
  }
  if constexpr (!std::is_integral_v<T>) reduce_everywhere<T>(comm, ReduceOp::mean);
}

void move_everything(Communicator& comm) {
  using T = std::int16_t;  // Data that is only moved may be of any type.
  const int me = comm.rank();
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto rank = static_cast<std::size_t>(me);
  const auto mine = values<T>(me, 5);
  std::vector<T> host_all(5 * ranks), device_all(host_all);

  auto host = mine, device = mine;
  comm.broadcast(host, root);
  comm.broadcast(on_device(device, me), root);
  check_equal(device, host);
  comm.all_gather(mine, host_all);
  comm.all_gather(on_device(mine, me), on_device(device_all, me));
  check_equal(device_all, host_all);

  std::vector<T> host_root(host_all.size()), device_root(host_all.size());
  comm.gather(mine, host_root, root);
  comm.gather(on_device(mine, me), on_device(device_root, me), root);
  check_equal(device_root, host_root);
  comm.scatter(host_all, host, root);
  comm.scatter(on_device(device_all, me), on_device(device, me), root);
  check_equal(device, host);

  const auto all = values<T>(me, 5 * ranks);
  comm.all_to_all(all, host_all);
  comm.all_to_all(on_device(all, me), on_device(device_all, me));
  check_equal(device_all, host_all);

  // Rank 0 has a part of no elements.
  std::vector<std::size_t> counts(ranks);
  std::iota(counts.begin(), counts.end(), std::size_t{0});
  const auto sum = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const auto part = values<T>(me, rank);
  std::vector<T> host_sum(sum), device_sum(sum);
  comm.all_gather_v(part, host_sum, counts);
  comm.all_gather_v(part.empty() ? ConstTensorView(part) : on_device(part, me),
                    on_device(device_sum, me), counts);
  check_equal(device_sum, host_sum);
  comm.gather_v(part, host_sum, counts, root);
  comm.gather_v(on_device(part, me), on_device(device_sum, me), counts, root);
  check_equal(device_sum, host_sum);
  std::vector<T> host_part(rank), device_part(rank);
  comm.scatter_v(host_sum, host_part, counts, root);
  comm.scatter_v(on_device(device_sum, me), on_device(device_part, me), counts, root);
  check_equal(device_part, host_part);

  // Rank i sends i + j elements to rank j.
  std::vector<std::size_t> exchanged(ranks);
  for (std::size_t j = 0; j < ranks; ++j) exchanged[j] = rank + j;
  const auto total = std::accumulate(exchanged.begin(), exchanged.end(), std::size_t{0});
  const auto out = values<T>(me, total);
  std::vector<T> host_in(total), device_in(total);
  comm.all_to_all_v(out, exchanged, host_in, exchanged);
  comm.all_to_all_v(on_device(out, me), exchanged, on_device(device_in, me), exchanged);
  check_equal(device_in, host_in);
}

TEST_CASE("every collective on devices gives what it gives in host memory") {
  for (const int size : {2, 3, 5}) {
    CAPTURE(size);
    check_all(run_device_ranks(size, [](const World& world) {
      Communicator comm(world);
      move_everything(comm);
    }));
  }
}

TEST_CASE("every reduction that NCCL has, in every type that it has") {
  check_all(run_device_ranks(3, [](const World& world) {
    Communicator comm(world);
    reduce_by_all<std::uint8_t>(comm);
    reduce_by_all<std::int8_t>(comm);
    reduce_by_all<std::int32_t>(comm);
    reduce_by_all<std::uint32_t>(comm);
    reduce_by_all<std::int64_t>(comm);
    reduce_by_all<std::uint64_t>(comm);
    reduce_by_all<float>(comm);
    reduce_by_all<double>(comm);
    reduce_by_all<float16>(comm);
    reduce_by_all<bfloat16>(comm);
    reduce_everywhere<float>(comm, Reduction::premul_sum(0.5), {});
    reduce_everywhere<double>(comm, Reduction::premul_sum(0.25), {});
    reduce_everywhere<float16>(comm, Reduction::premul_sum(0.5), {});
    reduce_everywhere<bfloat16>(comm, Reduction::premul_sum(2), {});
  }));
}

TEST_CASE("a rank that is alone needs nobody") {
  check_all(run_device_ranks(1, [](const World& world) {
    Communicator comm(world);
    std::vector<float> x{1, 2, 3}, y(3);
    comm.all_reduce(on_device(x, 0), Reduction::premul_sum(2));
    comm.all_gather(on_device(x, 0), on_device(y, 0));
    CHECK(y == std::vector<float>{2, 4, 6});
  }));
}

TEST_CASE("NCCL leaves out the last elements that a lone rank scales, and dlaunch does not") {
  check_all(run_device_ranks(1, [](const World& world) {
    Communicator comm(world);
    constexpr std::size_t of_16_kib = 2048, of_512_kib = 65536;
    for (const std::size_t count : {std::size_t{1}, of_16_kib, of_16_kib + 1, std::size_t{4099},
                                    of_512_kib - 1, of_512_kib + 4099, 3 * of_512_kib}) {
      const std::vector<double> in(count, 3);
      for (const auto& [reduction, wanted] : {std::pair{Reduction::premul_sum(0.5), 1.5},
                                              std::pair{Reduction(ReduceOp::mean), 3.0}}) {
        std::vector<double> out(count);
        comm.reduce_scatter(on_device(in, 0), on_device(out, 0), reduction);
        CHECK(out == std::vector<double>(count, wanted));
        out = in;
        comm.all_reduce(on_device(out, 0), reduction);
        CHECK(out == std::vector<double>(count, wanted));
      }
    }
  }));
}

TEST_CASE("messages go in batches, and one by one where they cannot wait for each other") {
  check_all(run_device_ranks(3, [](const World& world) {
    Communicator comm(world);
    const int me = comm.rank(), next = (me + 1) % 3, before = (me + 2) % 3;
    std::vector<int> mine(4, me), theirs(4);
    comm.broadcast(on_device(theirs, me), 0);
    const std::vector<Transfer> both{Transfer::send(on_device(mine, me), next),
                                     Transfer::recv(on_device(theirs, me), before)};
    comm.batch(both);
    CHECK(theirs == std::vector<int>(4, before));
    theirs.assign(4, 9);
    for (Work& work : comm.start_batch(both)) work.wait();
    CHECK(theirs == std::vector<int>(4, before));

    if (me == 0) comm.send(on_device(mine, me), 2);
    if (me == 2) {
      const Received what = comm.recv(on_device(theirs, me), 0);
      CHECK(what == Received{0, 0, DType::i32, 4});
      CHECK(theirs == std::vector<int>(4, 0));
    }
    if (me == 1) comm.isend(on_device(mine, me), 2).wait();
    if (me == 2) {
      comm.irecv(on_device(theirs, me), 1).wait();
      CHECK(theirs == std::vector<int>(4, 1));
    }
  }));
}

TEST_CASE("groups of a communicator have one of NCCL of their own") {
  check_all(run_device_ranks(4, [](const World& world) {
    Communicator comm(world);
    const int me = comm.rank();
    std::vector<int> x{me};
    const auto sum_of = [&](Communicator& among) {
      x = {me};
      among.all_reduce(on_device(x, me));
      return x[0];
    };
    auto early = comm.split(me % 2);
    CHECK(sum_of(comm) == 6);
    CHECK(sum_of(*early) == (me % 2 == 0 ? 2 : 4));
    auto late = comm.split(me / 2, -me);
    CHECK(sum_of(*late) == (me < 2 ? 1 : 5));
    Communicator copy = comm.duplicate();
    CHECK(sum_of(copy) == 6);
    const std::vector<int> some{3, 1};
    auto group = comm.group(some);
    CHECK(group.has_value() == (me % 2 == 1));
    if (group) CHECK(sum_of(*group) == 4);
    CHECK(sum_of(comm) == 6);
  }));
}

TEST_CASE("memory of a device") {
  check_all(run_device_ranks(2, [](const World& world) {
    Communicator comm(world);
    const DeviceBuffer buffer = comm.allocate_device(4 * sizeof(float), comm.rank());
    REQUIRE(buffer.data() != nullptr);
    CHECK(buffer.size_bytes() == 16);
    const TensorView view = buffer.view(DType::f32);
    CHECK(view.count == 4);
    auto* const elements = static_cast<float*>(cuda_double::host_address(view.data));
    std::fill_n(elements, 4, 2.f);
    comm.all_reduce(view);
    CHECK(elements[3] == 4.f);
  }));
}

}  // namespace
}  // namespace dlaunch::testing
