#include "collectives/algorithms/shared/shared_sources.hpp"

#include <cstdint>
#include <cstring>

namespace dlaunch::algorithms::shared {
namespace {

constexpr std::uint64_t nowhere = ~std::uint64_t{0};

/// Looks into the table only if the last call was another one: the look takes a third of a small
/// call's time.
Shared choice(transport::Op op, std::size_t bytes, transport::ShmGroup& shm, bool registered) {
  auto& [key, chosen] = shm.last_choice(registered);
  const std::uint64_t wanted = bytes << 8 | static_cast<std::uint64_t>(op);
  if (key != wanted) {
    const Topology topology{.ranks = shm.size(), .shared = true, .registered = registered};
    chosen = shm.wait_policy().table().select(op, bytes, topology).algorithm.number();
    key = wanted;
  }
  return static_cast<Shared>(chosen);
}

}  // namespace

Shared serving(transport::Op op, std::size_t bytes, transport::ShmGroup& shm) {
  return choice(op, bytes, shm, false);
}

bool pays_to_offer(transport::Op op, std::size_t bytes, transport::ShmGroup& shm) {
  return choice(op, bytes, shm, true) == Shared::in_place;
}

bool Sources::offer(const std::byte* data, std::size_t bytes) {
  const std::uint64_t offset = shm_.segment().offset_of(data, bytes).value_or(nowhere);
  std::memcpy(shm_.payload(), &offset, sizeof offset);
  direct_ = 0;
  note(shm_.rank(), offset == nowhere ? nullptr : shm_.segment().at(offset));
  return offset != nowhere;
}

void Sources::offer_nothing() {
  std::memcpy(shm_.payload(), &nowhere, sizeof nowhere);
  direct_ = 0;
  note(shm_.rank(), nullptr);
}

std::byte* Sources::learn(int member) {
  std::uint64_t offset = nowhere;
  std::memcpy(&offset, shm_.payload_of(member), sizeof offset);
  note(member, offset == nowhere ? nullptr : shm_.segment().at(offset));
  return of(member);
}

void Sources::learn_all() {
  for (int member = 0; member < shm_.size(); ++member) {
    if (member != shm_.rank()) learn(member);
  }
}

void Sources::note(int member, std::byte* data) {
  shm_.source(member) = data;
  if (data != nullptr) ++direct_;
}

}  // namespace dlaunch::algorithms::shared
