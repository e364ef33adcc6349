// Every collective between four ranks, with results one can do in one's head. Each rank checks its
// own; rank 0 prints them.
//
//   dlaunch --nproc_per_node 4 collectives
#include <dlaunch/dlaunch.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

namespace {

using dlaunch::ReduceOp;
using Longs = std::vector<std::int64_t>;

std::string text_of(const Longs& values) {
  std::string text;
  for (const auto value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "[" + text + "]";
}

/// Shows rank 0's results, and counts what is wrong on any rank.
class Checks {
 public:
  explicit Checks(int rank) : rank_(rank) {}

  void equal(const char* call, const Longs& got, const Longs& wanted) {
    if (got != wanted) {
      ++wrong_;
      std::printf("rank %d: %s gave %s, not %s\n", rank_, call, text_of(got).c_str(),
                  text_of(wanted).c_str());
    } else if (rank_ == 0) {
      std::printf("%-22s %s\n", call, text_of(got).c_str());
    }
  }
  std::int64_t wrong() const { return wrong_; }

 private:
  int rank_;
  std::int64_t wrong_ = 0;
};

void all_reduces(dlaunch::Communicator& comm, Checks& checks) {
  const auto reduced = [&](ReduceOp op) {
    Longs t{comm.rank() + 1, 10 * (comm.rank() + 1)};
    comm.all_reduce(t, op);
    return t;
  };
  checks.equal("all_reduce sum", reduced(ReduceOp::sum), {10, 100});
  checks.equal("all_reduce product", reduced(ReduceOp::product), {24, 240000});
  checks.equal("all_reduce max", reduced(ReduceOp::max), {4, 40});
  checks.equal("all_reduce min", reduced(ReduceOp::min), {1, 10});
  checks.equal("all_reduce band", reduced(ReduceOp::band), {0, 0});
  checks.equal("all_reduce bor", reduced(ReduceOp::bor), {7, 62});
  checks.equal("all_reduce bxor", reduced(ReduceOp::bxor), {4, 40});

  // 16-bit floats are summed in f32 and rounded once, and a NaN of any rank wins.
  std::vector<dlaunch::float16> half{dlaunch::float16(comm.rank() == 3 ? 2048.0F : 1.0F)};
  comm.all_reduce(half);
  checks.equal("1 + 1 + 1 + 2048, f16", {std::lround(static_cast<float>(half[0]))}, {2052});
  double lowest = comm.rank() == 2 ? std::numeric_limits<double>::quiet_NaN() : comm.rank();
  comm.all_reduce(lowest, ReduceOp::min);
  checks.equal("min with a NaN is NaN", {std::isnan(lowest)}, {1});
}

void rooted(dlaunch::Communicator& comm, Checks& checks) {
  const std::int64_t r = comm.rank();
  Longs x{r, r};
  comm.broadcast(x, 2);
  checks.equal("broadcast from 2", x, {2, 2});

  const Longs mine{r + 1};
  Longs sum(r == 0 ? 1 : 0);
  comm.reduce(mine, sum, 0);
  checks.equal("reduce to 0", sum, r == 0 ? Longs{10} : Longs{});
  checks.equal("... leaves the input", mine, {r + 1});

  Longs all(r == 0 ? 4 : 0);
  comm.gather(mine, all, 0);
  checks.equal("gather to 0", all, r == 0 ? Longs{1, 2, 3, 4} : Longs{});
  const Longs parts = r == 0 ? Longs{5, 6, 7, 8} : Longs{};
  Longs part(1);
  comm.scatter(parts, part, 0);
  checks.equal("scatter from 0", part, {5 + r});
}

void everyone_with_everyone(dlaunch::Communicator& comm, Checks& checks) {
  const std::int64_t r = comm.rank();
  const Longs in{10 * r, 10 * r + 1, 10 * r + 2, 10 * r + 3};
  Longs out(4), part(1);
  const Longs mine{10 * r};
  comm.all_gather(mine, out);
  checks.equal("all_gather", out, {0, 10, 20, 30});
  comm.reduce_scatter(in, part);
  checks.equal("reduce_scatter", part, {60 + 4 * r});
  comm.all_to_all(in, out);
  checks.equal("all_to_all", out, {r, 10 + r, 20 + r, 30 + r});
}

void messages(dlaunch::Communicator& comm, Checks& checks) {
  // Around the ring; a batch starts all before it waits for any.
  const std::int64_t r = comm.rank();
  const Longs mine{r};
  Longs got(1);
  const int next = (comm.rank() + 1) % 4, previous = (comm.rank() + 3) % 4;
  const std::vector transfers = {dlaunch::Transfer::send(mine, next),
                                 dlaunch::Transfer::recv(got, previous)};
  comm.batch(transfers);
  checks.equal("from the rank before", got, {previous});

  auto half = comm.split(comm.rank() % 2);  // Even ranks, odd ranks.
  Longs sum{r};
  half->all_reduce(sum);
  checks.equal("sum of the even ranks", sum, {r % 2 == 0 ? 2 : 4});
}

}  // namespace

int main() try {
  const dlaunch::World world = dlaunch::World::from_env();
  if (world.size() != 4) {
    std::fprintf(stderr, "collectives: these results are of four ranks, not of %d\n", world.size());
    return 64;
  }
  dlaunch::Communicator comm(world);
  Checks checks(comm.rank());
  all_reduces(comm, checks);
  rooted(comm, checks);
  everyone_with_everyone(comm, checks);
  messages(comm, checks);
  Longs wrong{checks.wrong()};
  comm.all_reduce(wrong);
  if (comm.rank() == 0) std::printf("%lld wrong\n", static_cast<long long>(wrong[0]));
  return wrong[0] == 0 ? 0 : 1;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "collectives: %s\n", error.what());
  return 1;
}
