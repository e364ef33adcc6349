#include "runtime/base/bytes.hpp"

#include <dlaunch/tree.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace dlaunch {
namespace {

constexpr std::uint32_t tree_magic = 0x31544c44;  // "DLT1"
constexpr std::size_t extents_max = 64;
constexpr std::array<const char*, 9> kinds{"null",   "bool", "integer", "real", "text",
                                           "tensor", "list", "tuple",   "dict"};

/// Elements of a shape; nullopt if it is negative or not countable.
std::optional<std::size_t> count_of(const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (__builtin_mul_overflow(count, static_cast<std::size_t>(extent), &count)) {
      return std::nullopt;
    }
  }
  return count;
}

Error undecodable(const char* why) {
  return Error(Errc::mismatch, std::string("what arrived is no structured value: ") + why);
}

/// Encodes depth first, each value behind its kind; the kinds' numbers are those of Tree::Value.
class Encoder {
 public:
  explicit Encoder(Bytes& out) : writer_(out) {}

  void tree(const Tree& tree, int depth) {
    if (depth > Tree::depth_max) {
      throw Error(Errc::misuse, "a structured value is deeper than " +
                                    std::to_string(Tree::depth_max) + " levels");
    }
    writer_.integer(static_cast<std::uint8_t>(tree.value().index()));
    std::visit([&](const auto& value) { item(value, depth); }, tree.value());
  }

 private:
  void item(std::monostate, int) {}
  void item(bool value, int) { writer_.integer(static_cast<std::uint8_t>(value)); }
  void item(std::int64_t value, int) { writer_.integer(value); }
  void item(double value, int) { writer_.integer(std::bit_cast<std::uint64_t>(value)); }
  void item(const std::string& text, int) { string(text); }
  void item(const Tensor& tensor, int) {
    check(tensor);
    writer_.integer(static_cast<std::uint8_t>(tensor.dtype));
    writer_.integer(static_cast<std::uint8_t>(tensor.shape.size()));
    for (const std::int64_t extent : tensor.shape) writer_.integer(extent);
    writer_.raw(tensor.data);
  }
  void item(const Tree::List& list, int depth) { items(list, depth); }
  void item(const Tree::Tuple& tuple, int depth) { items(tuple.items, depth); }
  void item(const Tree::Dict& dict, int depth) {
    writer_.integer(std::uint64_t{dict.size()});
    for (const auto& [key, value] : dict) {
      string(key);
      tree(value, depth + 1);
    }
  }
  /// A tensor that other ranks could not decode is refused here, before any of them waits for it.
  static void check(const Tensor& tensor) {
    if (tensor.shape.size() > extents_max) {
      throw Error(Errc::misuse, "a tensor has " + std::to_string(tensor.shape.size()) +
                                    " axes, and with more than " + std::to_string(extents_max) +
                                    " it cannot be sent");
    }
    const auto count = count_of(tensor.shape);
    const std::size_t size = size_of(tensor.dtype);
    if (size == 0 || !count || tensor.data.size() / size != *count ||
        tensor.data.size() % size != 0) {
      throw Error(Errc::misuse, "a tensor has " + std::to_string(tensor.data.size()) +
                                    " bytes of data, which do not fit its dtype and shape");
    }
  }
  void items(const std::vector<Tree>& all, int depth) {
    writer_.integer(std::uint64_t{all.size()});
    for (const Tree& each : all) tree(each, depth + 1);
  }
  void string(const std::string& text) {
    writer_.integer(std::uint64_t{text.size()});
    writer_.raw(as_bytes(text));
  }

  ByteWriter writer_;
};

class Decoder {
 public:
  explicit Decoder(BytesView in) : reader_(in) {}

  std::uint32_t magic() { return reader_.integer<std::uint32_t>(); }
  bool complete() const { return reader_.complete(); }

  Tree tree(int depth) {
    if (depth > Tree::depth_max) throw undecodable("it is too deep");
    switch (reader_.integer<std::uint8_t>()) {
      case 0:
        return check(Tree());
      case 1:
        return check(Tree(reader_.integer<std::uint8_t>() != 0));
      case 2:
        return check(Tree(reader_.integer<std::int64_t>()));
      case 3:
        return check(Tree(std::bit_cast<double>(reader_.integer<std::uint64_t>())));
      case 4:
        return Tree(string());
      case 5:
        return Tree(tensor());
      case 6:
        return Tree(Tree::List(items(depth)));
      case 7:
        return Tree(Tree::Tuple{items(depth)});
      case 8:
        return Tree(dict(depth));
      default:
        throw undecodable("an unknown kind");
    }
  }

 private:
  Tree check(Tree tree) {
    if (!reader_.ok()) throw undecodable("it is cut off");
    return tree;
  }
  /// A count of items of at least `each` bytes: a count that the input cannot hold is refused
  /// before memory is spent on it.
  std::size_t size(std::size_t each) {
    const auto n = reader_.integer<std::uint64_t>();
    if (!reader_.ok() || n > reader_.left() / each) throw undecodable("it is cut off");
    return n;
  }
  std::string string() {
    const std::size_t n = size(1);
    return std::string(as_text(reader_.raw(n)));
  }
  Tensor tensor() {
    Tensor tensor;
    tensor.dtype = static_cast<DType>(reader_.integer<std::uint8_t>());
    const auto extents = reader_.integer<std::uint8_t>();
    if (size_of(tensor.dtype) == 0) throw undecodable("an unknown dtype");
    if (extents > extents_max) throw undecodable("a tensor with too many axes");
    for (int i = 0; i < extents; ++i) tensor.shape.push_back(reader_.integer<std::int64_t>());
    const auto count = count_of(tensor.shape);
    if (!reader_.ok() || !count || *count > reader_.left() / size_of(tensor.dtype)) {
      throw undecodable("a tensor's shape does not fit its data");
    }
    const auto data = reader_.raw(*count * size_of(tensor.dtype));
    tensor.data.assign(data.begin(), data.end());
    return tensor;
  }
  std::vector<Tree> items(int depth) {
    std::vector<Tree> all;
    for (std::size_t n = size(1); n > 0; --n) all.push_back(tree(depth + 1));
    return all;
  }
  Tree::Dict dict(int depth) {
    Tree::Dict all;
    for (std::size_t n = size(9); n > 0; --n) {
      std::string key = string();
      all.emplace_back(std::move(key), tree(depth + 1));
    }
    return all;
  }

  ByteReader reader_;
};

const Tree* find(const Tree::Dict& dict, std::string_view key) {
  const auto found =
      std::find_if(dict.begin(), dict.end(), [&](const auto& entry) { return entry.first == key; });
  return found == dict.end() ? nullptr : &found->second;
}

}  // namespace

// ---- Tensor ----

Tensor::Tensor(DType type, std::vector<std::int64_t> extents)
    : dtype(type), shape(std::move(extents)) {
  const auto elements = count_of(shape);
  if (!elements || size_of(dtype) == 0) {
    throw Error(Errc::misuse, "a tensor has a known dtype, and extents that are not negative");
  }
  data.resize(*elements * size_of(dtype));
}

Tensor::Tensor(const ConstTensorView& view)
    : Tensor(view.dtype, {static_cast<std::int64_t>(view.count)}) {
  const std::array<std::int64_t, 1> strides{view.stride};
  *this = packed(view.data, view.dtype, shape, strides);
}

Tensor Tensor::packed(const void* first, DType type, std::vector<std::int64_t> extents,
                      std::span<const std::int64_t> strides) {
  Tensor tensor(type, std::move(extents));
  if (strides.size() != tensor.shape.size()) {
    throw Error(Errc::misuse, "a tensor has one stride for each extent");
  }
  const std::size_t size = size_of(type), elements = tensor.count();
  std::vector<std::int64_t> at(tensor.shape.size());
  const auto* base = static_cast<const std::byte*>(first);
  for (std::size_t i = 0; i < elements; ++i) {
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < at.size(); ++axis) offset += at[axis] * strides[axis];
    std::memcpy(tensor.data.data() + i * size, base + offset * static_cast<std::int64_t>(size),
                size);
    for (std::size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < tensor.shape[axis]) break;
      at[axis] = 0;
    }
  }
  return tensor;
}

std::size_t Tensor::count() const noexcept {
  return size_of(dtype) == 0 ? 0 : data.size() / size_of(dtype);
}

void Tensor::require(DType expected) const {
  if (dtype != expected) {
    throw Error(Errc::misuse, std::string("the tensor has ") + to_string(dtype) +
                                  " elements, not " + to_string(expected));
  }
}

void Tensor::require_count(std::size_t values) const {
  if (values != count()) {
    throw Error(Errc::misuse, std::to_string(values) + " values were given for a tensor of " +
                                  std::to_string(count()) + " elements");
  }
}

// ---- Tree ----

void Tree::throw_integer() {
  throw Error(Errc::misuse, "an integer of a structured value has at most 63 bits and a sign");
}

const char* Tree::kind() const noexcept { return kinds[value_.index()]; }

void Tree::throw_kind() const {
  throw Error(Errc::misuse,
              std::string("the structured value is not of the kind asked for, but ") + kind());
}

const Tree& Tree::operator[](std::string_view key) const {
  const Tree* found = find(as<Dict>(), key);
  if (found == nullptr) {
    throw Error(Errc::misuse, "the dictionary has no key '" + std::string(key) + "'");
  }
  return *found;
}

const Tree& Tree::operator[](std::size_t index) const {
  const auto* tuple = std::get_if<Tuple>(&value_);
  const auto& all = tuple != nullptr ? tuple->items : as<List>();
  if (index >= all.size()) {
    throw Error(Errc::misuse, std::string("the ") + kind() + " has " + std::to_string(all.size()) +
                                  " items, none at " + std::to_string(index));
  }
  return all[index];
}

std::size_t Tree::size() const noexcept {
  if (const auto* list = std::get_if<List>(&value_)) return list->size();
  if (const auto* tuple = std::get_if<Tuple>(&value_)) return tuple->items.size();
  if (const auto* dict = std::get_if<Dict>(&value_)) return dict->size();
  return 0;
}

bool operator==(const Tree& a, const Tree& b) {
  const auto* left = std::get_if<Tree::Dict>(&a.value_);
  const auto* right = std::get_if<Tree::Dict>(&b.value_);
  if (left == nullptr || right == nullptr) return a.value_ == b.value_;
  return left->size() == right->size() &&
         std::all_of(left->begin(), left->end(), [&](const auto& entry) {
           const Tree* other = find(*right, entry.first);
           return other != nullptr && *other == entry.second;
         });
}

Bytes Tree::encode() const {
  Bytes out;
  out.reserve(256);
  ByteWriter(out).integer(tree_magic);
  Encoder(out).tree(*this, 0);
  return out;
}

Tree Tree::decode(BytesView bytes) {
  Decoder decoder(bytes);
  if (decoder.magic() != tree_magic) throw undecodable("it does not begin as one");
  Tree tree = decoder.tree(0);
  if (!decoder.complete()) throw undecodable("something follows it");
  return tree;
}

}  // namespace dlaunch
