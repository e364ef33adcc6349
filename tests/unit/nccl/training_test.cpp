#include "tests/unit/nccl/double_ranks.hpp"

#include <dlaunch/gradient_reducer.hpp>

#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

/// Gradients on a device, averaged while a stream still computes.
namespace dlaunch::testing {
namespace {

using cuda_double::Stream;

constexpr std::size_t parameters_count = 5;
constexpr std::size_t elements = 100;

/// One rank's model: parameters in device memory, whose gradients are its own or the reducer's.
struct Model {
  std::vector<std::vector<float>> values, gradients;
  std::vector<Parameter> parameters;

  Model(int device, bool provided) {
    for (std::size_t i = 0; i < parameters_count; ++i) {
      values.emplace_back(elements, static_cast<float>(device) + static_cast<float>(i));
      gradients.emplace_back(elements);
    }
    for (std::size_t i = 0; i < parameters_count; ++i) {
      parameters.push_back({"p" + std::to_string(i), on_device(values[i], device), {}, {}});
      if (!provided) parameters.back().gradient = on_device(gradients[i], device);
    }
  }
};

/// Computes a rank's gradient: by a kernel, which is on the stream and done later.
void compute(Stream* stream, const TensorView& gradient, float value) {
  auto* const first = static_cast<float*>(cuda_double::host_address(gradient.data));
  cuda_double::put(stream, [=] { std::fill_n(first, gradient.count, value); });
}

bool all_are(const TensorView& view, float value) {
  const auto* first = static_cast<const float*>(cuda_double::host_address(view.data));
  return std::all_of(first, first + view.count, [&](float each) { return each == value; });
}

void train(const World& world, bool provided, ReducerSettings settings) {
  Communicator comm(world);
  const int me = comm.rank();
  Stream* const stream = cuda_double::make_stream(me);
  settings.cuda_stream = stream;
  Model model(me, provided);
  GradientReducer reducer(comm, model.parameters, {}, settings);
  cuda_double::synchronize(stream);
  for (std::size_t i = 0; i < parameters_count; ++i) {
    CHECK(all_are(model.parameters[i].value, static_cast<float>(i)));
  }
  const auto ranks = static_cast<float>(comm.size());
  for (int step = 0; step < 4; ++step) {
    reducer.begin();
    for (std::size_t i = parameters_count; i-- > 0;) {
      const auto scale = static_cast<float>(step + 1) * static_cast<float>(i + 1);
      compute(stream, reducer.gradient(i), scale * static_cast<float>(me + 1));
      reducer.ready(i);
    }
    reducer.finish();
    cuda_double::synchronize(stream);
    for (std::size_t i = 0; i < parameters_count; ++i) {
      const auto scale = static_cast<float>(step + 1) * static_cast<float>(i + 1);
      CHECK(all_are(reducer.gradient(i), scale * (ranks + 1) / 2));
    }
  }
  CHECK(reducer.buckets().size() > 1);
}

TEST_CASE("gradients on a device become their mean") {
  for (const bool provided : {false, true}) {
    for (const bool rebuilds : {false, true}) {
      CAPTURE(provided);
      CAPTURE(rebuilds);
      ReducerSettings settings;
      settings.first_bucket_bytes = elements * sizeof(float);
      settings.bucket_bytes = 2 * elements * sizeof(float);
      settings.rebuild_buckets = rebuilds;
      check_all(run_device_ranks(2, [&](const World& world) { train(world, provided, settings); }));
    }
  }
}

TEST_CASE("a gradient that no rank has on a device stays as it is") {
  check_all(run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    const int me = comm.rank();
    Stream* const stream = cuda_double::make_stream(me);
    ReducerSettings settings;
    settings.cuda_stream = stream;
    settings.find_unused = true;
    Model model(me, false);
    GradientReducer reducer(comm, model.parameters, {}, settings);
    for (auto& gradient : model.gradients) gradient.assign(elements, 9.f);
    reducer.begin();
    if (me == 0) {
      compute(stream, reducer.gradient(1), 4.f);
      reducer.ready(1);
    }
    reducer.finish();
    cuda_double::synchronize(stream);
    CHECK(all_are(reducer.gradient(1), 2.f));
    CHECK(all_are(reducer.gradient(0), 9.f));
  }));
}

TEST_CASE("what cannot be trained on a device is refused on all ranks") {
  const auto check = [](const std::string& part, const auto& change) {
    CAPTURE(part);
    const auto outcomes = run_device_ranks(2, [&](const World& world) {
      Communicator comm(world);
      Model model(comm.rank(), false);
      if (comm.rank() == 1) change(model);
      GradientReducer reducer(comm, model.parameters);
    });
    for (const Outcome& outcome : outcomes) {
      CHECK_MESSAGE((outcome.code == Errc::misuse || outcome.code == Errc::mismatch), outcome.text);
      CHECK_MESSAGE(outcome.mentions(part), outcome.text);
    }
  };
  check("parameter 2 'p2' lies in host memory, and the first parameter on CUDA device 1",
        [](Model& model) { model.parameters[2].value.place = {}; });
  check("the gradient of parameter 1 'p1' lies on CUDA device 0",
        [](Model& model) { model.parameters[1].gradient.place = Place{0}; });
  check("has a stride", [](Model& model) {
    auto& [name, value, gradient, shape] = model.parameters[3];
    value.count = gradient.count = elements / 2;
    value.stride = 2;
  });
  check("c64 elements, which NCCL does not sum", [](Model& model) {
    auto& [name, value, gradient, shape] = model.parameters[0];
    value.dtype = gradient.dtype = DType::c64;
    value.count = gradient.count = elements / 2;
  });
  check("CUDA)", [](Model& model) {
    for (Parameter& parameter : model.parameters) {
      parameter.value.place = parameter.gradient.place = {};
    }
  });
}

}  // namespace
}  // namespace dlaunch::testing
