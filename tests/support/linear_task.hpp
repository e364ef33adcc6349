#pragma once

#include <dlaunch/dlaunch.hpp>

#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace dlaunch::testing {

/// y = w x + b, trained on y = 2 x + 1 by (w x + b - y)^2: input k of rank r is k + 1 + r / 2.
struct Linear {
  float w = 0.5F, b = 0.25F;
  float gw = 0, gb = 0;  ///< Gradients.

  static float input(int step, int rank) {
    return static_cast<float>(step) + 1 + 0.5F * static_cast<float>(rank);
  }
  std::vector<Parameter> parameters() { return {{"w", w, gw, {1, 1}}, {"b", b, gb, {1}}}; }
  float loss(float x) const {
    const float error = w * x + b - (2 * x + 1);
    return error * error;
  }
  /// Adds this input's gradient.
  void backward(float x) {
    const float slope = 2 * (w * x + b - (2 * x + 1));
    gw += slope * x;
    gb += slope;
  }
  void descend(float rate) {
    w -= rate * gw;
    b -= rate * gb;
  }
  void zero_gradients() { gw = gb = 0; }
};

/// One iteration of gradients, the bias' first, as a backward pass computes them.
inline void reduced_step(GradientReducer& reducer, Linear& model, float x) {
  reducer.begin();
  model.zero_gradients();
  model.backward(x);
  reducer.ready(1);
  reducer.ready(0);
  reducer.finish();
}

/// The model that all ranks end with if rank r has counts[r] inputs, without any of the code that
/// is tested. A rank's gradient is scaled before the sum.
inline Linear reference_of(const std::vector<int>& counts, float rate, bool divide_by_world) {
  Linear model;
  for (int step = 0;; ++step) {
    int active = 0;
    for (const int count : counts) active += count > step ? 1 : 0;
    if (active == 0) return model;
    const auto divisor = divide_by_world ? static_cast<int>(counts.size()) : active;
    const float factor = static_cast<float>(1.0 / divisor);
    float gw = 0, gb = 0;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      if (counts[rank] <= step) continue;
      model.zero_gradients();
      model.backward(Linear::input(step, static_cast<int>(rank)));
      gw += model.gw * factor;
      gb += model.gb * factor;
    }
    model.gw = gw;
    model.gb = gb;
    model.descend(rate);
  }
}

/// Each rank has a part of the parameters, which it alone updates and gives to all: rank
/// (index % size) those with that index. Uses the gradients that `model` has.
class ShardedDescent final : public Joinable {
 public:
  ShardedDescent(Communicator& comm, Linear& model, float rate)
      : Joinable(comm), model_(model), rate_(rate) {}

  void step() {
    announce();
    update();
  }
  std::unique_ptr<JoinHook> join_hook() override {
    struct Hook final : JoinHook {
      explicit Hook(ShardedDescent& descent) : descent_(descent) {}
      void main_hook(int) override { descent_.update(); }
      void post_hook(int) override {}
      ShardedDescent& descent_;
    };
    return std::make_unique<Hook>(*this);
  }

 private:
  void update() {
    const std::array<float*, 2> values{&model_.w, &model_.b};
    const std::array<float, 2> gradients{model_.gw, model_.gb};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int owner = static_cast<int>(i) % communicator().size();
      if (communicator().rank() == owner) *values[i] -= rate_ * gradients[i];
      communicator().broadcast(*values[i], owner, traffic());
    }
  }

  Linear& model_;
  float rate_;
};

}  // namespace dlaunch::testing
