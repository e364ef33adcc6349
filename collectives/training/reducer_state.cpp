#include "collectives/training/reducer_state.hpp"

#include "collectives/training/bucket_plan.hpp"
#include "collectives/training/parameters.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch {

namespace {

/// The alignment at which two buckets, or gradients of different types, share no lines that are
/// fetched together.
constexpr std::size_t alignment = 128;

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// The site of the parameters, which all lie in the same place.
std::unique_ptr<training::BucketSite> site_of(Communicator& communicator,
                                              const std::vector<Parameter>& parameters,
                                              const ReducerSettings& settings) {
  const int device = training::device_of(parameters);
  if (device < 0) return training::host_site(communicator);
  return training::device_site(communicator, device, settings.cuda_stream);
}

}  // namespace

GradientReducer::State::State(Communicator& comm, int joinable, JoinGroup& joins,
                              std::vector<Parameter> trained, std::vector<TensorView> common,
                              ReducerSettings given)
    : communicator(comm),
      number(joinable),
      group(joins),
      parameters(std::move(trained)),
      buffers(std::move(common)),
      settings(given),
      site(site_of(comm, parameters, given)),
      is_put(parameters.size()),
      used(parameters.size()) {
  lay_out(training::plan_buckets(parameters, training::guessed_order(parameters.size()),
                                 settings.first_bucket_bytes, settings.bucket_bytes));
}

GradientReducer::State::~State() {
  try {
    works.clear();
    before.clear();
    site->finish();
  } catch (const Error&) {
    // The device has failed, so nothing under way uses the memory.
  }
}

MarkedOptions GradientReducer::State::options(Purpose purpose, std::uint32_t part) const {
  return group.mark({purpose, group.is_shadowing(), number, part},
                    {.cuda_stream = settings.cuda_stream, .site = group.site()});
}

std::string GradientReducer::State::name_of(std::size_t parameter) const {
  return training::name_of(parameters, parameter);
}

// ---- Memory. ----

void GradientReducer::State::lay_out(std::vector<std::vector<std::size_t>> buckets) {
  std::vector<Place> moved(parameters.size());
  begins.clear();
  bytes.clear();
  std::size_t end = 0;
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    begins.push_back(end);
    for (const std::size_t parameter : buckets[bucket]) {
      moved[parameter] = {bucket, end};
      end += parameters[parameter].value.bytes();
    }
    bytes.push_back(end - begins.back());
    end = aligned(end);
  }
  training::BucketMemory made = site->allocate(std::max(end, alignment));
  for (std::size_t parameter = 0; parameter < parameters.size() && memory.data(); ++parameter) {
    if (!is_provided(parameter)) continue;
    site->copy(memory.data() + places[parameter].offset, made.data() + moved[parameter].offset,
               parameters[parameter].value.bytes());
  }
  site->finish();
  memory = std::move(made);
  zeros = {};
  places = std::move(moved);
  plan = std::move(buckets);
}

TensorView GradientReducer::State::place_of(std::size_t parameter) const {
  const TensorView& value = parameters[parameter].value;
  return {memory.data() + places[parameter].offset, value.count, value.dtype, site->place()};
}

// ---- What an iteration begins with. ----

/// The rank whose buffers and order count: 0, or the highest rank that has inputs.
int GradientReducer::State::source(bool joined) {
  if (!joined) return 0;
  std::int64_t highest = group.is_shadowing() ? -1 : communicator.rank();
  communicator.all_reduce(highest, ReduceOp::max, options(Purpose::source));
  return static_cast<int>(highest);
}

void GradientReducer::State::await_before() {
  for (Work& work : before) work.wait();
  before.clear();
}

bool GradientReducer::State::meet(bool joined, bool wants_sum) {
  await_before();
  if (rebuild_due || !buffers.empty()) {
    const int root = source(joined);
    if (rebuild_due) rebuild(root);
    training::spread(communicator, buffers, root, options(Purpose::buffers));
  }
  if (!joined) return wants_sum;
  const bool sums_here = wants_sum && !group.is_shadowing();
  std::int32_t sum = sums_here ? 1 : 0;
  communicator.all_reduce(sum, ReduceOp::sum, options(Purpose::sync));
  if (sum != 0 && sum != group.active()) {
    const auto side =
        group.is_shadowing() ? std::nullopt : std::optional<std::int64_t>(sums_here ? 1 : 0);
    throw Error(Errc::mismatch, "GradientReducer: " + std::to_string(sum) + " of " +
                                    std::to_string(group.active()) +
                                    " ranks sum their gradients in this iteration, the others are "
                                    "in no_sync(): " +
                                    group.two_sides(side, sums_here ? "sums" : "is in no_sync()"));
  }
  return sum != 0;
}

/// Makes the buckets anew in the root's order. A rank that was always a shadow has seen no order,
/// and proposes the present one.
void GradientReducer::State::rebuild(int root) {
  std::vector<std::size_t> proposed = std::exchange(order, {});
  std::vector<bool> is_in(parameters.size());
  for (const std::size_t parameter : proposed) is_in[parameter] = true;
  for (const auto& bucket : plan) {
    std::copy_if(bucket.begin(), bucket.end(), std::back_inserter(proposed),
                 [&](std::size_t parameter) { return !is_in[parameter]; });
  }
  std::vector<std::uint64_t> agreed(proposed.begin(), proposed.end());
  communicator.broadcast(agreed, root, options(Purpose::order));
  proposed.assign(agreed.begin(), agreed.end());
  lay_out(training::plan_buckets(parameters, proposed, settings.first_bucket_bytes,
                                 settings.bucket_bytes));
  rebuild_due = false;
  is_rebuilt = true;
}

// ---- Sums. ----

void GradientReducer::State::begin_sums() {
  missing.clear();
  for (const auto& bucket : plan) missing.push_back(bucket.size());
  std::fill(is_put.begin(), is_put.end(), false);
  std::fill(used.begin(), used.end(), std::uint8_t{0});
  order.clear();
  next = 0;
}

void GradientReducer::State::put(std::size_t parameter) {
  const TensorView place = place_of(parameter);
  const TensorView& gradient = is_provided(parameter) ? place : parameters[parameter].gradient;
  site->put(gradient, static_cast<std::byte*>(place.data), factor);
  is_put[parameter] = true;
  used[parameter] = 1;
  order.push_back(parameter);
  --missing[places[parameter].bucket];
}

void GradientReducer::State::put_zeros(std::size_t parameter) {
  const TensorView place = place_of(parameter);
  site->clear(static_cast<std::byte*>(place.data), place.bytes());
  is_put[parameter] = true;
  --missing[places[parameter].bucket];
}

void GradientReducer::State::start_complete(bool pieces, const Joinable& reducer) {
  for (; next < plan.size() && missing[next] == 0; ++next) {
    if (pieces) {
      const int part = IterationPart::first_bucket + static_cast<int>(next);
      announcements.push_back(group.start_announce(reducer, part, words.emplace_back()));
    }
    works.push_back(start_sum(next, memory_of(next, memory)));
  }
}

Work GradientReducer::State::start_sum(std::size_t bucket, std::span<std::byte> sum) {
  const DType dtype = parameters[plan[bucket].front()].value.dtype;
  const TensorView view(sum.data(), sum.size() / size_of(dtype), dtype, site->place());
  return site->start_sum(view, factor,
                         options(Purpose::gradients, static_cast<std::uint32_t>(bucket)));
}

void GradientReducer::State::compare_used() {
  if (settings.find_unused) {
    communicator.all_reduce(used, ReduceOp::max, options(Purpose::unused));
  }
}

void GradientReducer::State::take_out(bool writes) {
  for (std::size_t i = 0; i < announcements.size(); ++i) {
    announcements[i].wait();
    group.news_of(words[i]);
  }
  announcements.clear();
  words.clear();
  for (std::size_t bucket = 0; bucket < plan.size(); ++bucket) {
    if (bucket < works.size()) site->await(works[bucket]);
    for (const std::size_t parameter : plan[bucket]) {
      if (!writes || is_provided(parameter)) continue;
      if (settings.find_unused && used[parameter] == 0) continue;
      site->take(static_cast<const std::byte*>(place_of(parameter).data),
                 parameters[parameter].gradient);
    }
  }
  before = std::move(works);
  works.clear();
  // With one bucket the order does not matter.
  if (!is_rebuilt) rebuild_due = settings.rebuild_buckets && plan.size() > 1;
}

void GradientReducer::State::sum_zeros() {
  const bool keeps = std::any_of(parameters.begin(), parameters.end(), [](const Parameter& each) {
    return each.gradient.count == 0 && each.value.count > 0;
  });
  if (keeps && zeros.size_bytes() < memory.size_bytes()) {
    zeros = site->allocate(memory.size_bytes());
  }
  for (std::size_t bucket = 0; bucket < plan.size(); ++bucket) {
    const auto sum = memory_of(bucket, keeps ? zeros : memory);
    site->clear(sum.data(), sum.size());
    works.push_back(start_sum(bucket, sum));
  }
}

void GradientReducer::State::end_alike(int root) {
  std::vector<TensorView> views;
  for (const Parameter& parameter : parameters) views.push_back(parameter.value);
  views.insert(views.end(), buffers.begin(), buffers.end());
  training::spread(communicator, views, root, options(Purpose::final_values));
}

}  // namespace dlaunch
