#pragma once

#include <dlaunch/export.hpp>
#include <dlaunch/store.hpp>
#include <dlaunch/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
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
  /// A packed copy of strided memory; strides in elements, one for each extent.
  static Tensor packed(const void* first, DType type, std::vector<std::int64_t> extents,
                       std::span<const std::int64_t> strides);

  /// Elements: the product of the extents.
  std::size_t count() const noexcept;
  /// Borrowed from this tensor.
  TensorView view() noexcept { return {data.data(), count(), dtype}; }
  ConstTensorView view() const noexcept { return {data.data(), count(), dtype}; }
  /// The elements as T; Error{misuse} if that is not their dtype.
  template <class T>
  std::span<const T> values() const {
    require(dtype_of<T>::value);
    return {reinterpret_cast<const T*>(data.data()), count()};
  }
  bool operator==(const Tensor&) const = default;

 private:
  void require(DType expected) const;
};

/// A structured value: null, bool, integer, real number, text, tensor, list, tuple or dictionary
/// (keys are text, the order of keys is kept and does not matter when comparing). A value: copying
/// copies all of it. Travels in a binary form of its own that holds data, never code; at most
/// depth_max levels deep.
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

  Tree() noexcept = default;                             ///< null
  Tree(std::nullptr_t) noexcept {}                       // NOLINT: literals convert.
  template <std::same_as<bool> Bool>                     // Else every pointer would be one.
  Tree(Bool value) : value_(value) {}                    // NOLINT
  Tree(int value) : value_(std::int64_t{value}) {}       // NOLINT
  Tree(std::int64_t value) : value_(value) {}            // NOLINT
  Tree(double value) : value_(value) {}                  // NOLINT
  Tree(const char* text) : value_(std::string(text)) {}  // NOLINT
  Tree(std::string text) : value_(std::move(text)) {}    // NOLINT
  Tree(Tensor tensor) : value_(std::move(tensor)) {}     // NOLINT
  Tree(List list) : value_(std::move(list)) {}           // NOLINT
  Tree(Tuple tuple) : value_(std::move(tuple)) {}        // NOLINT
  Tree(Dict dict) : value_(std::move(dict)) {}           // NOLINT
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

  /// The form in which it travels. Error{misuse} beyond depth_max.
  Bytes encode() const;
  /// Takes what encode made. Error{mismatch} for anything else; allocates no more than the input's
  /// size justifies.
  static Tree decode(BytesView bytes);

 private:
  [[noreturn]] void throw_kind() const;
  Value value_;
};

}  // namespace dlaunch
