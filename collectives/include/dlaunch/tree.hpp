#pragma once

#include <dlaunch/export.hpp>
#include <dlaunch/store.hpp>
#include <dlaunch/tensor.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace dlaunch {

/// An array that owns its elements: dtype, shape, and the elements in row-major order. No shape is
/// a scalar of one element; an extent of 0 makes it empty. A value.
struct DLAUNCH_API Tensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  Bytes data;

  Tensor() = default;
  /// Zeros. Error{misuse} for a negative extent.
  Tensor(DType type, std::vector<std::int64_t> extents);
  /// A copy of what the view shows, as one axis; strides are resolved.
  explicit Tensor(const ConstTensorView& view);
  /// These values in that shape, row-major: `Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3})`.
  /// Error{misuse} unless the shape has as many elements.
  template <Element T>
  static Tensor of(const std::vector<T>& values, std::vector<std::int64_t> extents) {
    Tensor made(dtype_of<T>::value, std::move(extents));
    made.require_count(values.size());
    std::copy(values.begin(), values.end(), made.values<T>().begin());
    return made;
  }
  /// The same as one axis.
  template <Element T>
  static Tensor of(const std::vector<T>& values) {
    return of(values, {static_cast<std::int64_t>(values.size())});
  }
  /// A packed copy of strided memory; strides in elements, one for each extent.
  static Tensor packed(const void* first, DType type, std::vector<std::int64_t> extents,
                       std::span<const std::int64_t> strides);

  /// Elements: the product of the extents.
  std::size_t count() const noexcept;
  /// Borrowed from this tensor.
  TensorView view() noexcept { return {data.data(), count(), dtype}; }
  ConstTensorView view() const noexcept { return {data.data(), count(), dtype}; }
  /// The elements as T, borrowed from this tensor; Error{misuse} if that is not their dtype.
  template <Element T>
  std::span<T> values() {
    require(dtype_of<T>::value);
    return {reinterpret_cast<T*>(data.data()), count()};
  }
  template <Element T>
  std::span<const T> values() const {
    require(dtype_of<T>::value);
    return {reinterpret_cast<const T*>(data.data()), count()};
  }
  bool operator==(const Tensor&) const = default;

 private:
  void require(DType expected) const;
  void require_count(std::size_t values) const;
};

/// A structured value: null, bool, integer, real number, text, tensor, list, tuple or dictionary
/// (keys are text, the order of keys is kept and does not matter when comparing). A value: copying
/// copies all of it. Travels in a binary form of its own that holds data, never code; at most
/// depth_max levels deep.
///
/// What C++ has converts: `comm.broadcast_object(Tree::dict({{"step", step}, {"losses", losses}}),
/// 0)` with a std::size_t and a std::vector<float>, which becomes a tensor of one axis; a vector of
/// anything else that converts becomes a list.
class DLAUNCH_API Tree {
 public:
  using List = std::vector<Tree>;
  struct Tuple {
    std::vector<Tree> items;
    bool operator==(const Tuple&) const = default;
  };
  using Dict = std::vector<std::pair<std::string, Tree>>;
  using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string, Tensor, List,
                             Tuple, Dict>;
  static constexpr int depth_max = 64;

  Tree() noexcept = default;           ///< null
  Tree(std::nullptr_t) noexcept {}     // NOLINT: literals convert.
  template <std::same_as<bool> Bool>   // Else every pointer would be one.
  Tree(Bool value) : value_(value) {}  // NOLINT
  /// Error{misuse} for one that is larger than 64 bits with a sign can say.
  template <std::integral Integer>
  requires(Element<Integer> && !std::same_as<Integer, bool>) Tree(Integer value)  // NOLINT
      : value_(integer(value)) {}
  template <std::floating_point Real>
  Tree(Real value) : value_(static_cast<double>(value)) {}  // NOLINT
  template <Element T>
  Tree(const std::vector<T>& values) : value_(Tensor::of(values)) {}  // NOLINT
  template <class T>
  requires(!Element<T> && std::convertible_to<const T&, Tree>) Tree(const std::vector<T>& items)
      : value_(List(items.begin(), items.end())) {}           // NOLINT
  Tree(std::string_view text) : value_(std::string(text)) {}  // NOLINT
  Tree(const char* text) : value_(std::string(text)) {}       // NOLINT
  Tree(std::string text) : value_(std::move(text)) {}         // NOLINT
  Tree(Tensor tensor) : value_(std::move(tensor)) {}          // NOLINT
  Tree(List list) : value_(std::move(list)) {}                // NOLINT
  Tree(Tuple tuple) : value_(std::move(tuple)) {}             // NOLINT
  Tree(Dict dict) : value_(std::move(dict)) {}                // NOLINT
  /// `Tree::list({1, 2.5, "x"})`, `Tree::dict({{"loss", 0.5}})`.
  static Tree list(std::initializer_list<Tree> items) { return Tree(List(items)); }
  static Tree tuple(std::initializer_list<Tree> items) { return Tree(Tuple{items}); }
  static Tree dict(std::initializer_list<std::pair<std::string, Tree>> items) {
    return Tree(Dict(items));
  }

  const Value& value() const noexcept { return value_; }
  Value& value() noexcept { return value_; }
  /// "null", "bool", "integer", "real", "text", "tensor", "list", "tuple", "dict".
  const char* kind() const noexcept;

  /// The value as T (an alternative of Value); Error{misuse} says what it is instead.
  template <class T>
  const T& as() const {
    const T* held = std::get_if<T>(&value_);
    if (held == nullptr) throw_kind();
    return *held;
  }
  /// An entry of a dictionary, an item of a list or tuple; Error{misuse} if there is none.
  const Tree& operator[](std::string_view key) const;
  const Tree& operator[](const char* key) const { return (*this)[std::string_view(key)]; }
  const Tree& operator[](std::size_t index) const;
  const Tree& operator[](int index) const { return (*this)[static_cast<std::size_t>(index)]; }
  /// Items of a list, tuple or dictionary; 0 for anything else.
  std::size_t size() const noexcept;

  /// Dictionaries compare whatever the order of their keys.
  DLAUNCH_API friend bool operator==(const Tree& a, const Tree& b);

  /// The value as JSON text, to show it, or to keep it beside its tensors: `indent` spaces a level,
  /// or all in one line if negative. A tensor is `{"$tensor":0,"dtype":"f32","shape":[2,3]}`,
  /// numbered in the order of the text; dlaunch/c/tree.h tells what else JSON has no word for.
  /// Error{misuse} for a dictionary's key that is not UTF-8.
  std::string text(int indent = -1) const;
  /// The tensors to which text() refers, in its order; borrowed from this value.
  std::vector<const Tensor*> tensors() const;
  /// What text() wrote, with its tensors, and any other JSON. Error{misuse} says what is wrong with
  /// it, and where.
  static Tree parse(std::string_view text, std::span<const Tensor> tensors = {});
  /// The same with tensors that are made when the text asks for one; `tensor` throws for a number
  /// that is none.
  static Tree parse(std::string_view text, const std::function<Tensor(std::uint64_t)>& tensor);
  /// Writes text().
  DLAUNCH_API friend std::ostream& operator<<(std::ostream& out, const Tree& tree);

  /// The binary form in which it travels, to keep in a store or a file. Error{misuse} beyond
  /// depth_max, and for a tensor whose data does not fit its shape.
  Bytes encode() const;
  /// Takes what encode() made. Error{mismatch} for anything else; allocates no more than the
  /// input's size justifies.
  static Tree decode(BytesView bytes);

 private:
  template <class Integer>
  static std::int64_t integer(Integer value) {
    if (!std::in_range<std::int64_t>(value)) throw_integer();
    return static_cast<std::int64_t>(value);
  }
  [[noreturn]] static void throw_integer();
  [[noreturn]] void throw_kind() const;
  Value value_;
};

}  // namespace dlaunch
