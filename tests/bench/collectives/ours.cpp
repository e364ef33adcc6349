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
    if (op == "started") return [=, this](long) { comm_.start_all_reduce(in).wait(); };
    if (op == "started_test") {
      return [=, this](long) {
        dlaunch::Work work = comm_.start_all_reduce(in);
        while (!work.test()) continue;
      };
    }
    if (op == "started_window" && count <= contest::window_elements) {
      return [=, this](long) { started_window(in); };
    }
    if (op == "started_then_blocking") {
      return [=, this](long) {
        comm_.start_all_reduce(in).wait();
        for (int i = 1; i < contest::started_window; ++i) comm_.all_reduce(in);
      };
    }
    if (op == "started_computing") {
      return [=, this](long) {
        dlaunch::Work work = comm_.start_all_reduce(in);
        contest::compute();
        work.wait();
      };
    }
    if (op == "window") return [=, this](long) { window(in, out); };
    if (op == "halo") {
      const std::size_t half = count / 2;
      return [=, this](long) { halo(buffers, half); };
    }
    if (op == "random_pairs") {
      return [=, this](long turn) {
        const int with = contest::partner(rank, size, turn);
        if (with < 0) return;
        comm_.batch({dlaunch::Transfer::recv(out, with), dlaunch::Transfer::send(in, with)});
      };
    }
    if (op == "fan_in") {
      return [=, this](long turn) { fan_in(in_part, buffers.out, turn); };
    }
    return {};
  }

 private:
  /// The root's are the first parts of `out`, as they come.
  void fan_in(const TensorView& in, float* out, long turn) {
    const int root = static_cast<int>(turn % size);
    const dlaunch::MessageOptions options{.tag = contest::fan_in_tag(turn)};
    if (rank != root) return comm_.send(in, root, options);
    for (int i = 1; i < size; ++i, out += in.count) {
      comm_.recv(floats(out, in.count), dlaunch::any_source, options);
    }
  }

  void ping_pong(const TensorView& in, const TensorView& out) {
    if (rank > 1) return;
    if (rank == 0) comm_.send(in, 1);
    comm_.recv(out, 1 - rank);
    if (rank == 1) comm_.send(in, 0);
  }

  /// Started on several communicators in turn, then waited for.
  void started_window(const TensorView& in) {
    while (others_.size() < contest::window_communicators) others_.push_back(comm_.duplicate());
    for (int i = 0; i < contest::started_window; ++i) {
      works_.push_back(others_[static_cast<std::size_t>(i) % others_.size()].start_all_reduce(
          floats(windows_ + i * contest::window_elements, in.count)));
    }
    dlaunch::wait_all(works_);
    works_.clear();
  }

  void window(const TensorView& in, const TensorView& out) {
    if (rank > 1) return;
    std::array<dlaunch::Work, contest::window> all;
    for (const int sender : {0, 1}) {
      for (dlaunch::Work& one : all) {
        one = rank == sender ? comm_.isend(in, 1 - rank) : comm_.irecv(out, 1 - rank);
      }
      dlaunch::wait_all(all);
    }
  }

  void halo(const contest::Buffers& buffers, std::size_t half) {
    const int left = (rank + size - 1) % size, right = (rank + 1) % size;
    const dlaunch::MessageOptions rightwards{.tag = 0}, leftwards{.tag = 1};
    std::array<dlaunch::Work, 4> all = {
        comm_.irecv(floats(buffers.out, half), left, rightwards),
        comm_.irecv(floats(buffers.out + half, half), right, leftwards),
        comm_.isend(floats(buffers.in, half), left, leftwards),
        comm_.isend(floats(buffers.in + half, half), right, rightwards)};
    dlaunch::wait_all(all);
  }

  dlaunch::World world_;
  dlaunch::Communicator comm_;
  dlaunch::SharedBuffer in_, out_;
  std::vector<dlaunch::Communicator> others_;
  std::vector<dlaunch::Work> works_;
  alignas(64) float windows_[contest::window * contest::window_elements] = {};
};

}  // namespace

int main(int argc, char** argv) try {
  Ours ours;
  return contest::run(ours, argc, argv);
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "ours: %s\n", error.what());
  return 1;
}
