#include "collectives/reduce/reduce_ops.hpp"

#include <dlaunch/reduction.hpp>

#include <utility>

namespace dlaunch {

struct Reduction::Custom {
  std::string name;
  Fold fold;
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

Reduction Reduction::custom(std::string name, Fold fold) {
  if (name.empty() || !fold) {
    throw Error(Errc::misuse, "a custom reduction needs a name and a function");
  }
  Reduction reduction;
  reduction.op_ = ReduceOp::custom;
  reduction.custom_ = std::make_shared<const Custom>(Custom{std::move(name), std::move(fold)});
  return reduction;
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

}  // namespace dlaunch
