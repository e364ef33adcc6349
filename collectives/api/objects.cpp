#include "collectives/algorithms/algorithms.hpp"
#include "collectives/call/checks.hpp"
#include "collectives/communicator/state.hpp"
#include "collectives/communicator/structure.hpp"
#include "collectives/reduce/reduce.hpp"
#include "runtime/base/phrases.hpp"

#include <dlaunch/tree.hpp>

#include <numeric>

/// Structured values travel encoded: first their sizes, then their bytes, under one fingerprint.
namespace dlaunch {
namespace {

using algorithms::Offsets;
using transport::Fingerprint;
using transport::Op;

/// The limit of one rank's encoded value.
constexpr std::uint64_t object_bytes_max = std::uint64_t{1} << 32;

Fingerprint fingerprint(Op op, int root = -1) {
  Fingerprint call;
  call.op = op;
  call.root = root;
  return call;
}

std::span<std::byte> bytes_of(std::uint64_t& number) {
  return std::as_writable_bytes(std::span(&number, 1));
}

Bytes encoded(const Call& call, const Tree& value) {
  Bytes bytes = value.encode();
  require(call, bytes.size() <= object_bytes_max, [&] {
    return std::string("a structured value of " + std::to_string(bytes.size()) +
                       " bytes is larger than the limit of " + std::to_string(object_bytes_max));
  });
  return bytes;
}

Offsets offsets_of(const Call& call, std::span<const std::uint64_t> sizes) {
  Offsets parts;
  for (const std::uint64_t size : sizes) {
    if (size > object_bytes_max) {
      throw Error(Errc::internal, call.label() + ": a rank announced " + std::to_string(size) +
                                      " bytes, which is more than it may send");
    }
    parts.add(size);
  }
  return parts;
}

std::vector<Tree> decoded(BytesView all, const Offsets& parts) {
  std::vector<Tree> values;
  for (std::size_t i = 0; i < parts.count(); ++i) {
    values.push_back(Tree::decode(all.subspan(parts[i], parts[i + 1] - parts[i])));
  }
  return values;
}

std::vector<Tree> exchange_objects(Call& call, const Tree& value) {
  const Bytes mine = encoded(call, value);
  const auto me = static_cast<std::size_t>(call.rank());
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(call.size()));
  sizes[me] = mine.size();
  algorithms::all_gather(call.ranks(), {reinterpret_cast<std::byte*>(sizes.data()),
                                        {call.size(), sizeof(std::uint64_t)}});
  const Offsets parts = offsets_of(call, sizes);
  Bytes all(parts.back());
  std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(parts[me]));
  algorithms::all_gather(call.ranks(), {all.data(), parts});
  return decoded(all, parts);
}

/// All ranks have all values, so all see the difference, and tell each other where they are.
void check(Call& call, const std::optional<structure::Difference>& found) {
  if (!found) return;
  const auto places = exchange_objects(call, Tree(call.where()));
  const auto side = [&](int rank, const std::string& value) {
    return "rank " + std::to_string(rank) + " is in " + call.full_label() +
           places[static_cast<std::size_t>(rank)].as<std::string>() + " with " + value;
  };
  throw Error(Errc::mismatch, side(0, found->first) + ", but " + side(found->rank, found->other) +
                                  ": " + found->sentence);
}

}  // namespace

Tree Communicator::broadcast_object(const Tree& value, int root, const Options& options) {
  Tree result;
  state_->rooted(state_->marked(fingerprint(Op::broadcast_object, root)), options, [&](Call& call) {
    check_root(call, root);
    Bytes bytes = call.rank() == root ? encoded(call, value) : Bytes();
    std::uint64_t size = bytes.size();
    algorithms::broadcast(call.ranks(), bytes_of(size), root);
    bytes.resize(offsets_of(call, {&size, 1}).back());
    algorithms::broadcast(call.ranks(), bytes, root);
    result = Tree::decode(bytes);
  });
  return result;
}

std::vector<Tree> Communicator::all_gather_objects(const Tree& value, const Options& options) {
  std::vector<Tree> values;
  state_->collective(fingerprint(Op::all_gather_object), options,
                     [&](Call& call) { values = exchange_objects(call, value); });
  return values;
}

Tree Communicator::all_gather_stacked(const Tree& value, const Options& options) {
  Tree result;
  state_->collective(fingerprint(Op::all_gather_object), options, [&](Call& call) {
    const auto values = exchange_objects(call, value);
    check(call, structure::find_difference(values));
    result = structure::stack(values);
  });
  return result;
}

Tree Communicator::all_reduce_object(const Tree& value, const Reduction& reduction,
                                     const ReduceOptions& options) {
  Fingerprint call_print = fingerprint(Op::all_reduce_object);
  call_print.reduce = reduction.op();
  call_print.argument = hash_of(reduction);
  Tree result;
  state_->collective(call_print, options, [&](Call& call) {
    if (call_print.argument != 0) call.explain({.reduction = &reduction});
    require(call, find_traits(reduction.op()) != nullptr,
            [] { return std::string("an unknown reduction"); });
    const auto values = exchange_objects(call, value);
    check(call, structure::find_difference(values));
    check(call, structure::find_unlike_leaf(values));
    result = structure::fold(values, reduction, options.truncate_mean, call.label());
  });
  return result;
}

std::vector<Tree> Communicator::gather_objects(const Tree& value, int root,
                                               const Options& options) {
  std::vector<Tree> values;
  state_->rooted(state_->marked(fingerprint(Op::gather_object, root)), options, [&](Call& call) {
    check_root(call, root);
    const Bytes mine = encoded(call, value);
    std::uint64_t size = mine.size();
    const bool is_root = call.rank() == root;
    std::vector<std::uint64_t> sizes(is_root ? static_cast<std::size_t>(call.size()) : 0);
    algorithms::gather(call.ranks(), bytes_of(size), reinterpret_cast<std::byte*>(sizes.data()),
                       root);
    const Offsets parts = offsets_of(call, sizes);
    Bytes all(parts.back());
    algorithms::gather_v(call.ranks(), mine, {all.data(), parts}, root);
    values = decoded(all, parts);
  });
  return values;
}

Tree Communicator::scatter_objects(std::span<const Tree> values, int root, const Options& options) {
  Tree result;
  state_->rooted(state_->marked(fingerprint(Op::scatter_object, root)), options, [&](Call& call) {
    check_root(call, root);
    Bytes all;
    std::vector<std::uint64_t> sizes;
    if (call.rank() == root) {
      require(call, values.size() == static_cast<std::size_t>(call.size()), [&] {
        return std::to_string(values.size()) + " values were given for " +
               plural(call.size(), "rank");
      });
      for (const Tree& value : values) {
        const Bytes bytes = encoded(call, value);
        sizes.push_back(bytes.size());
        all.insert(all.end(), bytes.begin(), bytes.end());
      }
    }
    std::uint64_t size = 0;
    algorithms::scatter(call.ranks(), reinterpret_cast<const std::byte*>(sizes.data()),
                        bytes_of(size), root);
    Bytes mine(offsets_of(call, {&size, 1}).back());
    algorithms::scatter_v(call.ranks(), {all.data(), offsets_of(call, sizes)}, mine, root);
    result = Tree::decode(mine);
  });
  return result;
}

void Communicator::send_object(const Tree& value, int to, const MessageOptions& options) {
  const Bytes bytes = value.encode();
  send(ConstTensorView(bytes), to, options);
}

Tree Communicator::recv_object(int from, const MessageOptions& options) {
  const Received next = probe(from, options);
  Bytes bytes(next.count * size_of(next.dtype));
  MessageOptions same = options;
  same.tag = next.tag;
  recv(TensorView(bytes.data(), next.count, next.dtype), next.source, same);
  return Tree::decode(bytes);
}

}  // namespace dlaunch
