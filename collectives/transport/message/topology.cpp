#include "collectives/transport/message/topology.hpp"

#include "runtime/base/bytes.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace dlaunch::transport {
namespace {

/// So many in one request; the answer stays far below a frame's limit.
constexpr std::size_t locations_per_request = 4096;

std::string key_of(std::size_t world_rank) { return "location/" + std::to_string(world_rank); }

Bytes encode(const Location& location) {
  Bytes out;
  ByteWriter writer(out);
  writer.integer(location.node);
  writer.integer(location.local);
  writer.integer(location.segment);
  return out;
}

Location decode(std::size_t world_rank, BytesView value) {
  ByteReader reader(value);
  Location location;
  location.node = reader.integer<std::int32_t>();
  location.local = reader.integer<std::int32_t>();
  location.segment = reader.integer<std::uint64_t>();
  if (reader.complete() && location.node >= 0 && location.local >= 0) return location;
  throw Error(Errc::internal, "rank " + std::to_string(world_rank) +
                                  " announced its location in a form that is unknown here: use one "
                                  "version of dlaunch for all ranks");
}

}  // namespace

void announce(Store& store, int world_rank, const Location& location) {
  store.set(key_of(static_cast<std::size_t>(world_rank)), encode(location));
}

std::optional<Location> find_location(Store& store, int world_rank) {
  const auto rank = static_cast<std::size_t>(world_rank);
  const auto value = store.get(key_of(rank));
  return value ? std::optional(decode(rank, *value)) : std::nullopt;
}

Topology::Topology(std::vector<Location> locations)
    : locations_(std::move(locations)), node_of_(locations_.size()), index_of_(locations_.size()) {
  std::map<std::int32_t, std::vector<int>> by_node;
  for (int rank = 0; rank < size(); ++rank) by_node[location_of(rank).node].push_back(rank);
  for (auto& [named, ranks] : by_node) {
    const auto order = [&](int rank) { return std::tuple(location_of(rank).local, rank); };
    std::sort(ranks.begin(), ranks.end(), [&](int a, int b) { return order(a) < order(b); });
    const std::uint64_t segment = location_of(ranks.front()).segment;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto rank = static_cast<std::size_t>(ranks[i]);
      node_of_[rank] = nodes();
      index_of_[rank] = static_cast<int>(i);
    }
    const bool shares = segment != 0 && std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
                          return location_of(rank).segment == segment;
                        });
    nodes_.push_back({std::move(ranks), shares});
  }
}

const Topology* Survey::ask(Store& store) {
  if (topology_) return topology();
  locations_.resize(static_cast<std::size_t>(size_));
  std::vector<std::size_t> unknown;
  for (std::size_t rank = 0; rank < locations_.size(); ++rank) {
    if (!locations_[rank]) unknown.push_back(rank);
  }
  std::size_t found = 0;
  for (std::size_t first = 0; first < unknown.size(); first += locations_per_request) {
    const std::size_t end = std::min(first + locations_per_request, unknown.size());
    std::vector<std::string> keys;
    for (std::size_t i = first; i < end; ++i) keys.push_back(key_of(unknown[i]));
    const auto values = multi_get(store, keys);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!values[i]) continue;
      const std::size_t rank = unknown[first + i];
      locations_[rank] = decode(rank, *values[i]);
      ++found;
    }
  }
  if (found < unknown.size()) return nullptr;
  std::vector<Location> locations;
  for (const auto& location : locations_) locations.push_back(*location);
  topology_.emplace(std::move(locations));
  locations_ = {};
  return topology();
}

}  // namespace dlaunch::transport
