// One program, any number of processes: what each call gives is the same rule for one rank as for
// many. Rank 0 prints a table.
//
//   dlaunch --nproc_per_node 4 fabric
//   fabric                                a world of one
#include <dlaunch/dlaunch.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using dlaunch::ReduceOp;
using dlaunch::Tensor;
using dlaunch::Tree;

Tensor longs(const std::vector<std::int64_t>& values) { return Tensor(values); }

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

template <class T>
std::string listed(const T& values) {
  std::string text;
  for (const auto& value : values) {
    text += (text.empty() ? "" : ", ") + number(static_cast<double>(value));
  }
  return "[" + text + "]";
}

std::string described(const Tensor& tensor) {
  const auto elements = tensor.dtype == dlaunch::DType::i64 ? listed(tensor.values<std::int64_t>())
                                                            : listed(tensor.values<double>());
  return elements + " of shape " + listed(tensor.shape);
}

/// A tree as one would write it.
std::string described(const Tree& tree) {
  if (const auto* tensor = std::get_if<Tensor>(&tree.value())) return described(*tensor);
  if (const auto* text = std::get_if<std::string>(&tree.value())) return "\"" + *text + "\"";
  if (const auto* whole = std::get_if<std::int64_t>(&tree.value())) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&tree.value())) return number(*real);
  std::string text;
  if (const auto* dict = std::get_if<Tree::Dict>(&tree.value())) {
    for (const auto& [key, value] : *dict) {
      text += (text.empty() ? "" : ", ") + key + ": " + described(value);
    }
    return "{" + text + "}";
  }
  for (std::size_t i = 0; i < tree.size(); ++i) {
    text += (text.empty() ? "" : ", ") + described(tree[i]);
  }
  return tree.size() == 0 ? tree.kind() : "(" + text + ")";
}

void show(const dlaunch::Communicator& comm, const char* call, const std::string& result) {
  if (comm.rank() == 0) std::printf("%-32s %s\n", call, result.c_str());
}

void broadcasts(dlaunch::Communicator& comm) {
  // The source's value wins, shape and type included: the others need not know either.
  const Tree mine = comm.rank() == 0
                        ? Tree::dict({{"step", 7}, {"name", "first"}, {"x", longs({1, 2, 3})}})
                        : Tree("whatever rank " + std::to_string(comm.rank()) + " has");
  show(comm, "broadcast_object(tree, 0)", described(comm.broadcast_object(mine, 0)));
}

void gathers(dlaunch::Communicator& comm) {
  // A new leading axis over the ranks, also where there is one rank only.
  const std::int64_t r = comm.rank();
  show(comm, "all_gather_stacked([10 r])",
       described(comm.all_gather_stacked(Tree(longs({10 * r})))));
  show(comm, "all_gather_stacked(r)", described(comm.all_gather_stacked(Tree(r))));
  const Tree nested = Tree::dict({{"pair", Tree::tuple({longs({r, -r}), "text"})}, {"rank", r}});
  show(comm, "all_gather_stacked({pair, rank})", described(comm.all_gather_stacked(nested)));
}

void reductions(dlaunch::Communicator& comm) {
  const auto r = static_cast<double>(comm.rank());
  const std::vector<double> gradient{r, 10 * r};
  const Tree step = Tree::dict({{"loss", r + 1}, {"gradient", Tensor(gradient)}});
  // The sum is the default, as in MPI; whoever wants the mean says so.
  show(comm, "all_reduce_object(tree)", described(comm.all_reduce_object(step)));
  show(comm, "all_reduce_object(tree, mean)",
       described(comm.all_reduce_object(step, ReduceOp::mean)));
  show(comm, "all_reduce_object(tree, max)",
       described(comm.all_reduce_object(step, ReduceOp::max)));
  try {
    (void)comm.all_reduce_object(Tree(comm.rank()), ReduceOp::mean);
    show(comm, "all_reduce_object(integer, mean)", "no error?");
  } catch (const dlaunch::Error&) {
    show(comm, "all_reduce_object(integer, mean)", "an error: cast first, or ask for truncation");
  }
}

}  // namespace

int main() try {
  const dlaunch::World world = dlaunch::World::from_env();
  dlaunch::Communicator comm(world);
  dlaunch::rank_zero_first(world, [&] {
    std::printf("rank %d of %d %s\n", world.rank(), world.size(),
                world.rank() == 0 ? "prepares" : "finds all prepared");
    std::fflush(stdout);
  });
  comm.barrier({.ordered_output = true});  // The lines above come out before those below.
  broadcasts(comm);
  gathers(comm);
  reductions(comm);
  return 0;
} catch (const dlaunch::Error& error) {
  std::fprintf(stderr, "fabric: %s\n", error.what());
  return 1;
}
