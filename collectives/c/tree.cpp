#include "collectives/c/c_api.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <variant>

#include <nlohmann/json.hpp>

/// Structured values as JSON text with their tensors beside it; dlaunch/c/tree.h says how.
namespace {

using namespace dlaunch::c_api;
using dlaunch::Tensor;
using dlaunch::Tree;
using Json = nlohmann::ordered_json;

constexpr std::size_t axes_max = 64;
constexpr const char* too_deep = "the value is deeper than 64 levels";
static_assert(Tree::depth_max == 64);

// ---- From a tree to text. ----

std::string hex_of(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    hex += {digits[byte >> 4U], digits[byte & 15U]};
  }
  return hex;
}

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(Json(text).dump());
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

class Writer {
 public:
  Json json(const Tree& tree) {
    return std::visit([this](const auto& value) { return item(value); }, tree.value());
  }

 private:
  Json item(std::monostate) { return nullptr; }
  Json item(bool value) { return value; }
  Json item(std::int64_t value) { return value; }
  Json item(double value) {
    if (std::isfinite(value)) return value;
    return {{"$real", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
  }
  Json item(const std::string& text) {
    if (is_utf8(text)) return text;
    return {{"$bytes", hex_of(text)}};
  }
  Json item(const Tensor& tensor) {
    return {{"$tensor", tensors_++}, {"dtype", to_string(tensor.dtype)}, {"shape", tensor.shape}};
  }
  Json item(const Tree::List& list) { return items(list); }
  Json item(const Tree::Tuple& tuple) {
    Json json = Json::object();
    json["$tuple"] = items(tuple.items);
    return json;
  }
  Json item(const Tree::Dict& dict) {
    Json json = Json::object();
    for (const auto& [key, value] : dict) {
      require(is_utf8(key), "the dictionary key with the bytes " + hex_of(key) + " is no UTF-8");
      json[key.starts_with('$') ? "$" + key : key] = this->json(value);
    }
    return json;
  }
  Json items(const std::vector<Tree>& all) {
    Json json = Json::array();
    for (const Tree& each : all) json.push_back(this->json(each));
    return json;
  }

  std::size_t tensors_ = 0;
};

/// The tensors in the order in which Writer numbers them.
void collect(const Tree& tree, std::vector<const Tensor*>& tensors) {
  if (const auto* tensor = std::get_if<Tensor>(&tree.value())) tensors.push_back(tensor);
  const auto each = [&](const std::vector<Tree>& items) {
    for (const Tree& item : items) collect(item, tensors);
  };
  if (const auto* list = std::get_if<Tree::List>(&tree.value())) each(*list);
  if (const auto* tuple = std::get_if<Tree::Tuple>(&tree.value())) each(tuple->items);
  if (const auto* dict = std::get_if<Tree::Dict>(&tree.value())) {
    for (const auto& [key, value] : *dict) collect(value, tensors);
  }
}

// ---- From text to a tree. ----

Tensor tensor_of(const dl_tensor& given) {
  const auto axes = static_cast<std::size_t>(std::max(given.axes, 0));
  require(given.axes >= 0 && axes <= axes_max,
          "a tensor has 0 to 64 axes, not " + std::to_string(given.axes));
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

std::string text_of_hex(const std::string& hex) {
  std::string text;
  for (std::size_t at = 0; at + 1 < hex.size(); at += 2) {
    unsigned byte = 0;
    const char* end = hex.data() + at + 2;
    if (std::from_chars(hex.data() + at, end, byte, 16).ptr != end) break;
    text += static_cast<char>(byte);
  }
  require(text.size() * 2 == hex.size(), "\"$bytes\" takes pairs of hexadecimal digits");
  return text;
}

class Reader {
 public:
  explicit Reader(std::span<const dl_tensor> tensors) : tensors_(tensors) {}

  Tree tree(const Json& json, int depth = 0) const {
    require(depth <= Tree::depth_max, too_deep);
    switch (json.type()) {
      case Json::value_t::null:
        return {};
      case Json::value_t::boolean:
        return json.get<bool>();
      case Json::value_t::number_integer:
        return json.get<std::int64_t>();
      case Json::value_t::number_unsigned:
        return integer(json.get<std::uint64_t>());
      case Json::value_t::number_float:
        return json.get<double>();
      case Json::value_t::string:
        return json.get<std::string>();
      case Json::value_t::array:
        return Tree::List(items(json, depth));
      case Json::value_t::object:
        return object(json, depth);
      case Json::value_t::binary:
      case Json::value_t::discarded:
        break;
    }
    throw Misuse{"the text has a value of a kind that JSON does not have"};
  }

 private:
  static Tree integer(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return static_cast<double>(value);  // As the parser does with what is longer still.
    }
    return static_cast<std::int64_t>(value);
  }
  std::vector<Tree> items(const Json& json, int depth) const {
    std::vector<Tree> all;
    for (const Json& each : json) all.push_back(tree(each, depth + 1));
    return all;
  }
  Tree object(const Json& json, int depth) const {
    if (!json.empty()) {
      const std::string& first = json.begin().key();
      if (first.starts_with('$') && !first.starts_with("$$")) {
        require(first == "$tensor" || json.size() == 1,
                "a dictionary that begins with '" + first + "' has no other key");
        return special(first, json.begin().value(), depth);
      }
    }
    Tree::Dict dict;
    for (const auto& [key, value] : json.items()) {
      require(!key.starts_with('$') || key.starts_with("$$"),
              "the key '" + key + "' begins with a dollar sign; a dictionary's own gets another");
      dict.emplace_back(key.starts_with('$') ? key.substr(1) : key, tree(value, depth + 1));
    }
    return dict;
  }
  Tree special(const std::string& key, const Json& value, int depth) const {
    if (key == "$tuple" && value.is_array()) return Tree::Tuple{items(value, depth)};
    if (key == "$tensor" && value.is_number_unsigned()) return tensor(value.get<std::uint64_t>());
    if (key == "$bytes" && value.is_string()) return text_of_hex(value.get<std::string>());
    if (key == "$real" && value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (key == "$real" && value == "inf") return std::numeric_limits<double>::infinity();
    if (key == "$real" && value == "-inf") return -std::numeric_limits<double>::infinity();
    throw Misuse{"{\"" + key + "\": " + value.dump(-1, ' ', true) +
                 "} means nothing; {\"$tensor\": number}, {\"$tuple\": list}, {\"$bytes\": "
                 "hexadecimal text} and {\"$real\": \"nan\", \"inf\" or \"-inf\"} do"};
  }
  Tree tensor(std::uint64_t index) const {
    require(index < tensors_.size(), "the text asks for tensor " + std::to_string(index) + ", " +
                                         std::to_string(tensors_.size()) + " were given");
    return tensor_of(tensors_[index]);
  }

  std::span<const dl_tensor> tensors_;
};

/// Deeper text is refused while it is read, before memory is spent on it.
Json parsed(std::string_view text) {
  const auto limit = [](int depth, Json::parse_event_t, const Json&) {
    // A tuple takes two levels of text for one of the value.
    require(depth <= 2 * Tree::depth_max + 2, too_deep);
    return true;
  };
  try {
    return Json::parse(text, limit);
  } catch (const Json::exception& error) {
    throw Misuse{std::string("the text is no JSON: ") + error.what()};
  }
}

// ---- Calls on a communicator. ----

const Tree& value_of(const dl_tree* tree) {
  static const Tree null;
  return tree != nullptr ? tree->tree : null;
}

/// Handles of all of them, or of none.
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

dl_tree::dl_tree(Tree value) : Handle(true), tree(std::move(value)) { collect(tree, tensors); }

dl_status dl_tree_parse(const char* json, const dl_tensor* tensors, size_t count, dl_tree** tree) {
  return guarded([&] {
    auto& made = place(tree, "tree");
    require(tensors != nullptr || count == 0, "'tensors' is a null pointer");
    made = new dl_tree(Reader({tensors, count}).tree(parsed(text_of(json, "json"))));
  });
}

dl_status dl_tree_json(const dl_tree* tree, int indent, char** text) {
  return guarded_on(tree, [&] {
    auto& result = place(text, "text");
    result = copied_text(Writer().json(tree->tree).dump(indent));
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
  return make(comm, result, [&](auto& c) {
    return c.all_reduce_object(value_of(value), reduction_of(reduction), options_of(options));
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
