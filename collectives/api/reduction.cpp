#include "collectives/api/buffers.hpp"
#include "collectives/call/checks.hpp"
#include "collectives/reduce/reduce.hpp"

#include <dlaunch/reduction.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace dlaunch {
namespace {

/// The layout of a struct of a value and an index, as compilers make it.
struct Pair {
  Pair(DType value, DType index)
      : is_wide(index == DType::i64),
        index_at(std::max(size_of(value), size_of(index))),
        bytes(index_at + index_at) {}

  template <class Index>
  static Index load(const std::byte* from) {
    Index index;
    std::memcpy(&index, from, sizeof index);
    return index;
  }
  std::int64_t index(const std::byte* pair) const {
    return is_wide ? load<std::int64_t>(pair + index_at) : load<std::int32_t>(pair + index_at);
  }

  bool is_wide;
  std::size_t index_at, bytes;
};

/// 16-bit floats are compared as f32.
template <class T>
auto number_at(const std::byte* pair) {
  T value;
  std::memcpy(static_cast<void*>(&value), pair, sizeof value);
  if constexpr (requires { value.bits; }) {
    return static_cast<float>(value);
  } else {
    return value;
  }
}

template <class T>
Reduction::Fold fold_pairs(Pair layout, bool is_greatest) {
  const auto wins = [layout, is_greatest](const std::byte* one, const std::byte* other) {
    const auto a = number_at<T>(one), b = number_at<T>(other);
    const bool a_is_nan = a != a, b_is_nan = b != b;
    if (a == b || (a_is_nan && b_is_nan)) return layout.index(one) < layout.index(other);
    if (a_is_nan || b_is_nan) return a_is_nan;
    return is_greatest ? a > b : a < b;
  };
  return [layout, wins](void* accumulated, const void* next, std::size_t count, DType) {
    auto* kept = static_cast<std::byte*>(accumulated);
    const auto* other = static_cast<const std::byte*>(next);
    for (; count > 0; --count, kept += layout.bytes, other += layout.bytes) {
      if (wins(other, kept)) std::memcpy(kept, other, layout.bytes);
    }
  };
}

Reduction located(const char* name, DType value, DType index, bool is_greatest) {
  const std::string whole =
      std::string(name) + " of " + to_string(value) + " at " + to_string(index);
  if (sense_of(ReduceOp::min, value) != Sense::good || size_of(value) == 0) {
    throw Error(Errc::misuse, whole + " makes no sense: such values have no order");
  }
  if (index != DType::i32 && index != DType::i64) {
    throw Error(Errc::misuse, whole + " makes no sense: an index is i32 or i64");
  }
  const Pair layout(value, index);
  return with_element(value, [&](auto element) -> Reduction {
    using T = decltype(element);
    if constexpr (
        requires { element < element; } || requires { element.bits; }) {
      return Reduction::custom(whole, fold_pairs<T>(layout, is_greatest), layout.bytes).any_order();
    } else {
      throw Error(Errc::internal, whole + ": no order");
    }
  });
}

}  // namespace

struct Reduction::Custom {
  std::string name;
  Fold fold;
  std::size_t element_bytes;
};

const char* to_string(ReduceOp op) noexcept { return traits_of(op).name; }

void Reduction::refuse(ReduceOp op) {
  throw Error(Errc::misuse,
              std::string("a reduction by ") + to_string(op) +
                  " needs more than its name: make it with Reduction::" + to_string(op));
}

Reduction Reduction::premul_sum(double factor) {
  Reduction reduction;
  reduction.op_ = ReduceOp::premul_sum;
  reduction.factor_ = factor;
  return reduction;
}

Reduction Reduction::custom(std::string name, Fold fold, std::size_t element_bytes) {
  if (name.empty() || !fold) {
    throw Error(Errc::misuse, "a custom reduction needs a name and a function");
  }
  Reduction reduction;
  reduction.op_ = ReduceOp::custom;
  reduction.custom_ =
      std::make_shared<const Custom>(Custom{std::move(name), std::move(fold), element_bytes});
  return reduction;
}

Reduction Reduction::min_located(DType value, DType index) {
  return located("min_located", value, index, false);
}

Reduction Reduction::max_located(DType value, DType index) {
  return located("max_located", value, index, true);
}

Reduction Reduction::canonical() const {
  Reduction copy = *this;
  copy.order_ = Order::pairs;
  return copy;
}

Reduction Reduction::any_order() const {
  Reduction copy = *this;
  copy.order_ = Order::any;
  return copy;
}

std::string Reduction::name() const { return custom_ ? custom_->name : to_string(op_); }

const Reduction::Fold& Reduction::fold() const noexcept {
  static const Fold none;
  return custom_ ? custom_->fold : none;
}

std::size_t Reduction::element_bytes() const noexcept {
  return custom_ ? custom_->element_bytes : 0;
}

void reduce_local(const ConstTensorView& in, const TensorView& inout, const Reduction& reduction) {
  const auto refuse = [](const std::string& sentence, Errc code = Errc::misuse) {
    throw Error(code, "reduce_local: " + sentence);
  };
  const auto text = [](const ConstTensorView& view) {
    return std::to_string(view.count) + " " + to_string(view.dtype) + " elements";
  };
  if (!in.place.is_host() || !inout.place.is_host()) {
    refuse("it reduces what lies in host memory; copy CUDA buffers first", Errc::unsupported);
  }
  if (in.dtype != inout.dtype || in.count != inout.count || size_of(in.dtype) == 0) {
    refuse("'in' has " + text(in) + ", and 'inout' has " + text(inout));
  }
  if ((in.data == nullptr || inout.data == nullptr) && in.count > 0) {
    refuse("a null pointer was given for " + text(in));
  }
  for (const ConstTensorView& view : {in, ConstTensorView(inout)}) {
    if (view.count > elements_max || reaches_too_far(view)) {
      refuse(text(view) + " with a stride of " + std::to_string(view.stride) +
             " reach further than memory may");
    }
  }
  if (const auto senseless = Reducer::objection(reduction, in.dtype, true)) refuse(*senseless);
  if (traits_of(reduction.op()).joins_by_sum) {
    refuse("a " + reduction.name() + " is of all ranks' elements at once; sum, and scale the sum");
  }
  if (const auto remainder = Reducer::remainder(reduction, in.bytes())) refuse(*remainder);
  const Packed packed(in);
  const Unpacked unpacked(inout, true);
  const std::array<const std::byte*, 2> inputs{packed.bytes().data(), unpacked.bytes().data()};
  std::byte* const out = unpacked.bytes().data();
  const std::size_t bytes = in.bytes();
  if (inputs[0] != out && inputs[0] < out + bytes && out < inputs[0] + bytes) {
    refuse("'in' and 'inout' overlap; they may be the same memory, else they lie apart");
  }
  const Reducer reducer(reduction, in.dtype, true);
  reducer(inputs, out, bytes / reducer.element_bytes());
  unpacked.commit();
}

}  // namespace dlaunch
