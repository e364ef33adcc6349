// dlaunch's collectives, for comparison with the peers'.
#include "tests/bench/collectives/harness.hpp"

#include <dlaunch/dlaunch.hpp>

#include <cstdio>
#include <cstring>

namespace {

using dlaunch::TensorView;

TensorView floats(float* data, std::size_t count) { return {data, count, dlaunch::DType::f32}; }

class Ours final : public contest::Contestant {
 public:
  Ours() : world_(dlaunch::World::from_env()), comm_(world_, "contest") {
    rank = comm_.rank();
    size = comm_.size();
  }

  void barrier() override { comm_.barrier(); }

  void share(const double* mine, double* all, int count) override {
    const auto each = static_cast<std::size_t>(count);
    comm_.all_gather({mine, each, dlaunch::DType::f64},
                     {all, each * static_cast<std::size_t>(size), dlaunch::DType::f64});
  }

  /// "in place": in buffers that all ranks share. Between nodes there are none.
  std::vector<std::string> ways(const std::string& op) override {
    const bool moves_much = op == "all_reduce" || op == "broadcast" || op == "all_gather" ||
                            op == "reduce_scatter" || op == "all_to_all";
    if (!moves_much || world_.info().node_count > 1) return {""};
    return {"", "in place"};
  }

  contest::Buffers buffers_for(const std::string& way, const contest::Buffers& ordinary,
                               std::size_t bytes) override {
    if (way.empty()) return ordinary;
    for (auto* shared : {&in_, &out_}) {
      if (shared->size_bytes() >= bytes) continue;
      *shared = comm_.allocate(bytes);
      std::memset(shared->data(), 0, bytes);
    }
    return {in_.as<float>().data(), out_.as<float>().data()};
  }

  contest::Call call(const std::string& op, const std::string&, std::size_t bytes,
                     const contest::Buffers& buffers) override {
    const std::size_t count = bytes / sizeof(float);
    const TensorView in = floats(buffers.in, count), out = floats(buffers.out, count);
    const TensorView in_part = floats(buffers.in, count / static_cast<std::size_t>(size));
    const TensorView out_part = floats(buffers.out, count / static_cast<std::size_t>(size));
    if (op == "barrier") return [this](long) { barrier(); };
    if (op == "barrier_ordered") return [this](long) { comm_.barrier(); };
    if (op == "all_reduce") return [=, this](long) { comm_.all_reduce(in); };
    if (op == "broadcast") {
      return [=, this](long turn) { comm_.broadcast(in, static_cast<int>(turn % size)); };
    }
    if (op == "all_gather") return [=, this](long) { comm_.all_gather(in_part, out); };
    if (op == "reduce_scatter") return [=, this](long) { comm_.reduce_scatter(in, out_part); };
    if (op == "all_to_all") return [=, this](long) { comm_.all_to_all(in, out); };
    if (op == "ping_pong") return [=, this](long) { ping_pong(in, out); };
    return {};
  }

 private:
  void ping_pong(const TensorView& in, const TensorView& out) {
    if (rank > 1) return;
    if (rank == 0) comm_.send(in, 1);
    comm_.recv(out, 1 - rank);
    if (rank == 1) comm_.send(in, 0);
  }

  dlaunch::World world_;
  dlaunch::Communicator comm_;
  dlaunch::SharedBuffer in_, out_;
};

}  // namespace

int main(int argc, char** argv) try {
  Ours ours;
  return contest::run(ours, argc, argv);
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "ours: %s\n", error.what());
  return 1;
}
