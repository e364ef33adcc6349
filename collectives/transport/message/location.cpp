#include "collectives/transport/message/location.hpp"

#include "runtime/base/bytes.hpp"

#include <dlaunch/error.hpp>

#include <string>

namespace dlaunch::transport {
namespace {

std::string key_of(int world_rank) { return "location/" + std::to_string(world_rank); }

Bytes encode(const Location& location) {
  Bytes out;
  ByteWriter writer(out);
  writer.integer(location.node);
  writer.integer(location.local);
  writer.integer(location.segment);
  return out;
}

Location decode(int world_rank, BytesView value) {
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
  store.set(key_of(world_rank), encode(location));
}

std::optional<Location> find_location(Store& store, int world_rank) {
  const auto value = store.get(key_of(world_rank));
  return value ? std::optional(decode(world_rank, *value)) : std::nullopt;
}

}  // namespace dlaunch::transport
