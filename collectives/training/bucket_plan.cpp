#include "collectives/training/bucket_plan.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace dlaunch::training {

std::vector<std::size_t> guessed_order(std::size_t parameters) {
  std::vector<std::size_t> order(parameters);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

std::vector<std::vector<std::size_t>> plan_buckets(std::span<const Parameter> parameters,
                                                   std::span<const std::size_t> order,
                                                   std::size_t first_bytes, std::size_t bytes) {
  struct Open {
    std::vector<std::size_t> members;
    std::size_t bytes = 0;
    std::size_t last = 0;  ///< Place in the order.
  };
  std::map<DType, Open> open;
  std::vector<std::vector<std::size_t>> buckets;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const TensorView& value = parameters[order[place]].value;
    Open& bucket = open[value.dtype];
    bucket.members.push_back(order[place]);
    bucket.bytes += value.bytes();
    bucket.last = place;
    if (bucket.bytes >= (buckets.empty() ? first_bytes : bytes)) {
      buckets.push_back(std::exchange(bucket, {}).members);
    }
  }
  std::vector<Open> rest;
  for (auto& [dtype, bucket] : open) {
    if (!bucket.members.empty()) rest.push_back(std::move(bucket));
  }
  std::sort(rest.begin(), rest.end(), [](const Open& a, const Open& b) { return a.last < b.last; });
  for (Open& bucket : rest) buckets.push_back(std::move(bucket.members));
  return buckets;
}

}  // namespace dlaunch::training
