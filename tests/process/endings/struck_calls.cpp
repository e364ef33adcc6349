#include "tests/process/endings/struck_calls.hpp"

#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace dlaunch::testing {
namespace {

using Floats = std::vector<float>;
using Counts = std::vector<std::size_t>;
using Calls = std::map<std::string, StruckCall>;

constexpr int root = 0;

std::size_t size_of(const Communicator& comm) { return static_cast<std::size_t>(comm.size()); }
std::size_t rank_of(const Communicator& comm) { return static_cast<std::size_t>(comm.rank()); }

/// No two ranks have the same number, and all of them more than n.
Counts uneven(const Communicator& comm, std::size_t n) {
  Counts counts(size_of(comm));
  std::iota(counts.begin(), counts.end(), n);
  return counts;
}
std::size_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

void ring_of_messages(Communicator& comm, std::size_t n) {
  const Floats out(n);
  Floats in(n);
  const int next = (comm.rank() + 1) % comm.size();
  const int previous = (comm.rank() + comm.size() - 1) % comm.size();
  if (comm.rank() == 0) {
    comm.send(out, next);
    comm.recv(in, previous);
  } else {
    comm.recv(in, previous);
    comm.send(out, next);
  }
}

void add_even(Calls& all) {
  all["barrier"] = [](Communicator& comm, std::size_t) { comm.barrier(); };
  all["broadcast"] = [](Communicator& comm, std::size_t n) {
    Floats x(n);
    comm.broadcast(x, root);
  };
  all["reduce"] = [](Communicator& comm, std::size_t n) {
    const Floats in(n);
    Floats out(n);
    comm.reduce(in, out, root);
  };
  all["all_reduce"] = [](Communicator& comm, std::size_t n) {
    Floats x(n);
    comm.all_reduce(x);
  };
  all["all_gather"] = [](Communicator& comm, std::size_t n) {
    const Floats in(n);
    Floats out(n * size_of(comm));
    comm.all_gather(in, out);
  };
  all["gather"] = [](Communicator& comm, std::size_t n) {
    const Floats in(n);
    Floats out(n * size_of(comm));
    comm.gather(in, out, root);
  };
  all["scatter"] = [](Communicator& comm, std::size_t n) {
    const Floats in(n * size_of(comm));
    Floats out(n);
    comm.scatter(in, out, root);
  };
  all["reduce_scatter"] = [](Communicator& comm, std::size_t n) {
    const Floats in(n * size_of(comm));
    Floats out(n);
    comm.reduce_scatter(in, out);
  };
  all["all_to_all"] = [](Communicator& comm, std::size_t n) {
    const Floats in(n * size_of(comm));
    Floats out(in.size());
    comm.all_to_all(in, out);
  };
  all["messages"] = ring_of_messages;
}

void add_uneven(Calls& all) {
  all["all_gather_v"] = [](Communicator& comm, std::size_t n) {
    const Counts counts = uneven(comm, n);
    const Floats in(counts[rank_of(comm)]);
    Floats out(sum(counts));
    comm.all_gather_v(in, out, counts);
  };
  all["gather_v"] = [](Communicator& comm, std::size_t n) {
    const Counts counts = uneven(comm, n);
    const Floats in(counts[rank_of(comm)]);
    Floats out(sum(counts));
    comm.gather_v(in, out, counts, root);
  };
  all["scatter_v"] = [](Communicator& comm, std::size_t n) {
    const Counts counts = uneven(comm, n);
    const Floats in(sum(counts));
    Floats out(counts[rank_of(comm)]);
    comm.scatter_v(in, out, counts, root);
  };
  all["reduce_scatter_v"] = [](Communicator& comm, std::size_t n) {
    const Counts counts = uneven(comm, n);
    const Floats in(sum(counts));
    Floats out(counts[rank_of(comm)]);
    comm.reduce_scatter_v(in, out, counts);
  };
  all["all_to_all_v"] = [](Communicator& comm, std::size_t n) {
    // To rank r go n + r elements from each.
    const Counts to = uneven(comm, n);
    const Counts from(size_of(comm), to[rank_of(comm)]);
    const Floats in(sum(to));
    Floats out(sum(from));
    comm.all_to_all_v(in, to, out, from);
  };
}

Tree tree_of(std::size_t n) {
  const Floats values(n);
  return Tree::dict({{"name", "x"}, {"values", Tensor(ConstTensorView(values))}});
}

void add_trees(Calls& all) {
  all["tree broadcast"] = [](Communicator& comm, std::size_t n) {
    static_cast<void>(comm.broadcast_object(comm.rank() == root ? tree_of(n) : Tree(), root));
  };
  all["tree all_gather"] = [](Communicator& comm, std::size_t n) {
    static_cast<void>(comm.all_gather_stacked(tree_of(n)));
  };
  all["tree all_reduce"] = [](Communicator& comm, std::size_t n) {
    const Floats values(n);
    static_cast<void>(comm.all_reduce_object(Tree::list({Tensor(ConstTensorView(values)), 1.5})));
  };
  all["all_gather_objects"] = [](Communicator& comm, std::size_t n) {
    static_cast<void>(comm.all_gather_objects(tree_of(n)));
  };
  all["gather_objects"] = [](Communicator& comm, std::size_t n) {
    static_cast<void>(comm.gather_objects(tree_of(n), root));
  };
  all["scatter_objects"] = [](Communicator& comm, std::size_t n) {
    const std::vector<Tree> values(comm.rank() == root ? size_of(comm) : 0, tree_of(n));
    static_cast<void>(comm.scatter_objects(values, root));
  };
}

void add_communicators(Calls& all) {
  all["split"] = [](Communicator& comm, std::size_t) {
    static_cast<void>(comm.split(comm.rank() % 2));
  };
  all["group"] = [](Communicator& comm, std::size_t) {
    static_cast<void>(comm.group(std::array{1, 2}));
  };
  all["duplicate"] = [](Communicator& comm, std::size_t) { static_cast<void>(comm.duplicate()); };
  // The call of another communicator than the one in which all meet afterwards.
  all["in a duplicate"] = [](Communicator& comm, std::size_t n) {
    Floats x(n);
    comm.duplicate().all_reduce(x);
  };
}

void add_started(Calls& all) {
  all["start_all_reduce"] = [](Communicator& comm, std::size_t n) {
    Floats x(n), y(n);
    Work first = comm.start_all_reduce(x), second = comm.start_all_reduce(y);
    first.wait();
    second.wait();
  };
  all["start_all_gather"] = [](Communicator& comm, std::size_t n) {
    const Floats in(n);
    Floats out(n * size_of(comm));
    comm.start_all_gather(in, out).wait();
  };
  all["start_batch"] = [](Communicator& comm, std::size_t n) {
    const Floats out(n);
    Floats in(n);
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    comm.batch(std::array{Transfer::recv(in, previous), Transfer::send(out, next)});
  };
}

/// Two parameters in two buckets, and what to do with them in each iteration.
struct Model {
  explicit Model(Communicator& comm, std::size_t n)
      : values(2 * n),
        gradients(2 * n),
        reducer(comm, {parameter("first", 0, n), parameter("second", n, n)}, {},
                {.first_bucket_bytes = n * sizeof(float), .bucket_bytes = n * sizeof(float)}) {}
  void train() {
    reducer.begin();
    reducer.ready(1);
    reducer.ready(0);
    reducer.finish();
  }
  Parameter parameter(const char* name, std::size_t at, std::size_t n) {
    return {name,
            TensorView(values.data() + at, n, DType::f32),
            TensorView(gradients.data() + at, n, DType::f32),
            {static_cast<std::int64_t>(n)}};
  }

  Floats values, gradients;
  GradientReducer reducer;
};

void add_training(Calls& all) {
  all["reducer"] = [](Communicator& comm, std::size_t n) {
    Model model(comm, n);
    for (int i = 0; i < 2; ++i) model.train();  // The second one with its buckets made anew.
  };
  // Rank 0 is a shadow in all iterations but the first, rank 1 in the last.
  all["join"] = [](Communicator& comm, std::size_t n) {
    Model model(comm, n);
    Join join(model.reducer);
    for (int i = 0; i <= comm.rank(); ++i) model.train();
    join.finish();
  };
}

}  // namespace

const std::map<std::string, StruckCall>& struck_calls() {
  static const Calls all = [] {
    Calls calls;
    add_even(calls);
    add_uneven(calls);
    add_trees(calls);
    add_communicators(calls);
    add_started(calls);
    add_training(calls);
    return calls;
  }();
  return all;
}

}  // namespace dlaunch::testing
