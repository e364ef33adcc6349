#include "collectives/c/c_api.hpp"

#include <span>

/// Structured values; dlaunch/c/tree.h says how their text reads.
namespace {

using namespace dlaunch::c_api;
using dlaunch::Tensor;
using dlaunch::Tree;

static_assert(Tree::depth_max == 64);

Tensor tensor_of(const dl_tensor& given) {
  require(given.axes >= 0 && given.axes <= axes_max,
          "a tensor has 0 to 64 axes, not " + std::to_string(given.axes));
  const auto axes = static_cast<std::size_t>(given.axes);
  require(given.shape != nullptr || axes == 0, "a tensor's 'shape' is a null pointer");
  Tensor tensor(dtype_of(given.dtype), {given.shape, given.shape + axes});
  require(given.data != nullptr || tensor.count() == 0, "a tensor's 'data' is a null pointer");
  if (tensor.count() == 0) return tensor;
  if (given.strides == nullptr) {
    std::memcpy(tensor.data.data(), given.data, tensor.data.size());
    return tensor;
  }
  return Tensor::packed(given.data, tensor.dtype, tensor.shape, {given.strides, axes});
}

/// An error in the text is an error of the argument, and is reported with the call's name.
Tree parsed(std::string_view json, std::span<const dl_tensor> tensors) {
  try {
    return Tree::parse(json, [&](std::uint64_t index) {
      require(index < tensors.size(), "the text asks for tensor " + std::to_string(index) + ", " +
                                          std::to_string(tensors.size()) + " were given");
      return tensor_of(tensors[index]);
    });
  } catch (const dlaunch::Error& wrong) {
    throw Misuse{wrong.what()};
  }
}

// ---- Calls on a communicator. ----

const Tree& value_of(const dl_tree* tree) {
  static const Tree null;
  return tree != nullptr ? tree->tree : null;
}

/// Makes handles of all trees, or of none.
void hand_out(std::vector<Tree> values, dl_tree** results) {
  std::vector<std::unique_ptr<dl_tree>> handles;
  for (Tree& value : values) handles.push_back(std::make_unique<dl_tree>(std::move(value)));
  for (auto& handle : handles) *results++ = handle.release();
}

/// A call that makes one tree.
template <class Call>
dl_status make(dl_comm* comm, dl_tree** result, Call&& call,
               const char* name = __builtin_FUNCTION()) {
  return guarded_on(
      comm,
      [&] {
        auto& made = place(result, "result");
        made = new dl_tree(call(comm->comm));
      },
      name);
}

}  // namespace

dl_tree::dl_tree(Tree value) : Handle(true), tree(std::move(value)), tensors(tree.tensors()) {}

dl_status dl_tree_parse(const char* json, const dl_tensor* tensors, size_t count, dl_tree** tree) {
  return guarded([&] {
    auto& made = place(tree, "tree");
    require(tensors != nullptr || count == 0, "'tensors' is a null pointer");
    made = new dl_tree(parsed(text_of(json, "json"), {tensors, count}));
  });
}

dl_status dl_tree_json(const dl_tree* tree, int indent, char** text) {
  return guarded_on(tree, [&] {
    auto& result = place(text, "text");
    result = copied_text(tree->tree.text(indent));
  });
}

size_t dl_tree_tensor_count(const dl_tree* tree) {
  return tree != nullptr ? tree->tensors.size() : 0;
}

dl_status dl_tree_tensor(const dl_tree* tree, size_t index, dl_tensor* tensor) {
  return guarded_on(tree, [&] {
    auto& result = place(tensor, "tensor");
    require(index < tree->tensors.size(), "there is no tensor " + std::to_string(index) +
                                              ", the value has " +
                                              std::to_string(tree->tensors.size()));
    const Tensor& found = *tree->tensors[index];
    result = {found.data.data(), static_cast<dl_dtype>(found.dtype),
              static_cast<std::int32_t>(found.shape.size()), found.shape.data(), nullptr};
  });
}

int dl_tree_equal(const dl_tree* a, const dl_tree* b) {
  return a != nullptr && b != nullptr && a->tree == b->tree ? 1 : 0;
}

void dl_tree_free(dl_tree* tree) { delete tree; }

dl_status dl_tree_encode(const dl_tree* tree, dl_bytes* bytes) {
  return guarded_on(tree, [&] {
    auto& result = place(bytes, "bytes");
    result = copied(tree->tree.encode());
  });
}

dl_status dl_tree_decode(const void* data, size_t bytes, dl_tree** tree) {
  return guarded([&] {
    auto& made = place(tree, "tree");
    made = new dl_tree(Tree::decode(bytes_of(data, bytes, "data")));
  });
}

dl_status dl_broadcast_object(dl_comm* comm, const dl_tree* value, int root, dl_tree** result,
                              const dl_options* options) {
  return make(comm, result, [&](auto& c) {
    return c.broadcast_object(value_of(value), root, options_of(options));
  });
}

dl_status dl_all_gather_objects(dl_comm* comm, const dl_tree* value, dl_tree** results,
                                const dl_options* options) {
  return guarded_on(comm, [&] {
    require(results != nullptr, "'results' is a null pointer");
    hand_out(comm->comm.all_gather_objects(value_of(value), options_of(options)), results);
  });
}

dl_status dl_all_gather_stacked(dl_comm* comm, const dl_tree* value, dl_tree** result,
                                const dl_options* options) {
  return make(comm, result,
              [&](auto& c) { return c.all_gather_stacked(value_of(value), options_of(options)); });
}

dl_status dl_all_reduce_object(dl_comm* comm, const dl_tree* value, dl_reduction reduction,
                               dl_tree** result, const dl_options* options) {
  Called call(comm, "dl_all_reduce_object");
  return make(comm, result, [&](auto& c) {
    return in_terms_of_c(call.fault, [&] {
      return c.all_reduce_object(value_of(value), taken(call, reduction), options_of(options));
    });
  });
}

dl_status dl_gather_objects(dl_comm* comm, const dl_tree* value, int root, dl_tree** results,
                            const dl_options* options) {
  return guarded_on(comm, [&] {
    require(results != nullptr || comm->comm.rank() != root, "'results' is a null pointer");
    hand_out(comm->comm.gather_objects(value_of(value), root, options_of(options)), results);
  });
}

dl_status dl_scatter_objects(dl_comm* comm, const dl_tree* const* values, int root,
                             dl_tree** result, const dl_options* options) {
  return make(comm, result, [&](auto& c) {
    std::vector<Tree> all;
    const bool reads = values != nullptr && c.rank() == root;
    for (int rank = 0; reads && rank < c.size(); ++rank) all.push_back(value_of(values[rank]));
    return c.scatter_objects(all, root, options_of(options));
  });
}

dl_status dl_send_object(dl_comm* comm, const dl_tree* value, int to, const dl_options* options) {
  return guarded_on(comm,
                    [&] { comm->comm.send_object(value_of(value), to, options_of(options)); });
}

dl_status dl_recv_object(dl_comm* comm, int from, dl_tree** result, const dl_options* options) {
  return make(comm, result, [&](auto& c) { return c.recv_object(from, options_of(options)); });
}
