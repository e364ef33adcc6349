#include "collectives/c/c_api.hpp"

#include <algorithm>
#include <span>
#include <vector>

/// Gradients.
using namespace dlaunch::c_api;  // NOLINT: what follows is this namespace's face.

namespace {

using dlaunch::CallSite;
using dlaunch::Parameter;
using dlaunch::ReducerSettings;
using dlaunch::TensorView;

/// The size of dl_reducer_settings when it was published.
constexpr std::size_t settings_size_first = 40;
static_assert(sizeof(dl_reducer_settings) >= settings_size_first);
static_assert(sizeof(dl_parameter) == 88);

CallSite site_of(const dl_options* options) { return options_of(options).site(); }

/// A gradient that the reducer provides is given without a dtype.
TensorView gradient_of(const dl_view& gradient) {
  return gradient.count == 0 ? TensorView() : view_of(gradient);
}

std::vector<Parameter> parameters_of(const dl_parameter* parameters, std::size_t count) {
  require(parameters != nullptr || count == 0, "'parameters' is a null pointer");
  std::vector<Parameter> all;
  for (const dl_parameter& each : std::span(parameters, count)) {
    require(each.reserved == 0, "a dl_parameter's 'reserved' is 0; make it with dl_make_parameter");
    require(each.axes >= 0 && each.axes <= axes_max && (each.shape != nullptr || each.axes == 0),
            "a dl_parameter's 'shape' has 0 to 64 axes");
    all.push_back({each.name != nullptr ? each.name : "",
                   view_of(each.value),
                   gradient_of(each.gradient),
                   {each.shape, each.shape + each.axes}});
  }
  return all;
}

ReducerSettings settings_of(const dl_reducer_settings* settings) {
  const auto given = known_part(settings, settings_size_first, "dl_reducer_settings");
  ReducerSettings made;
  if (given.first_bucket_bytes != 0) made.first_bucket_bytes = given.first_bucket_bytes;
  if (given.bucket_bytes != 0) made.bucket_bytes = given.bucket_bytes;
  made.find_unused = given.find_unused != 0;
  made.rebuild_buckets = given.keep_buckets == 0;
  made.cuda_stream = given.cuda_stream;
  return made;
}

}  // namespace

dl_status dl_reducer_create(dl_comm* comm, const dl_parameter* parameters, size_t count,
                            const dl_view* buffers, size_t buffer_count,
                            const dl_reducer_settings* settings, dl_reducer** reducer,
                            const dl_options* options) {
  return guarded_on(comm, [&] {
    auto& made = place(reducer, "reducer");
    require(buffers != nullptr || buffer_count == 0, "'buffers' is a null pointer");
    std::vector<TensorView> views;
    for (const dl_view& view : std::span(buffers, buffer_count)) views.push_back(view_of(view));
    made = new dl_reducer(comm->comm, parameters_of(parameters, count), std::move(views),
                          settings_of(settings), site_of(options));
  });
}

dl_status dl_reducer_begin(dl_reducer* reducer, const dl_options* options) {
  return guarded_on(reducer, [&] { reducer->reducer.begin(site_of(options)); });
}

dl_status dl_reducer_ready(dl_reducer* reducer, size_t index, const dl_options* options) {
  return guarded_on(reducer, [&] { reducer->reducer.ready(index, site_of(options)); });
}

dl_status dl_reducer_finish(dl_reducer* reducer, const dl_options* options) {
  return guarded_on(reducer, [&] { reducer->reducer.finish(site_of(options)); });
}

dl_status dl_reducer_set_sync(dl_reducer* reducer, int sync) {
  return guarded_on(reducer, [&] {
    if (sync != 0) {
      reducer->without_sync.reset();
    } else if (!reducer->without_sync) {
      reducer->without_sync.emplace(reducer->reducer);
    }
  });
}

dl_status dl_reducer_gradient(dl_reducer* reducer, size_t index, dl_view* gradient) {
  return guarded_on(reducer, [&] {
    auto& result = place(gradient, "gradient");
    const TensorView view = reducer->reducer.gradient(index);
    result = {view.data, view.count, view.stride, static_cast<dl_dtype>(view.dtype),
              view.place.cuda_device + 1};
  });
}

dl_status dl_reducer_bucket(dl_reducer* reducer, size_t index, size_t* bucket) {
  return guarded_on(reducer, [&] {
    auto& result = place(bucket, "bucket");
    const auto& buckets = reducer->reducer.buckets();
    const auto found = std::find_if(buckets.begin(), buckets.end(), [&](const auto& each) {
      return std::find(each.begin(), each.end(), index) != each.end();
    });
    require(found != buckets.end(), "there is no parameter " + std::to_string(index));
    result = static_cast<std::size_t>(found - buckets.begin());
  });
}

void dl_reducer_free(dl_reducer* reducer) { delete reducer; }
