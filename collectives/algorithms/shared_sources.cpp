#include "collectives/algorithms/shared_sources.hpp"

#include <cstdint>
#include <cstring>

namespace dlaunch::algorithms::shared {
namespace {

constexpr std::uint64_t nowhere = ~std::uint64_t{0};

}  // namespace

Algorithm serving(transport::Op op, std::size_t bytes, const transport::Team& team) {
  return select(op, bytes, {.ranks = team.size(), .shared = true}).algorithm;
}

bool pays_to_offer(transport::Op op, std::size_t bytes, const transport::Team& team) {
  const Topology topology{.ranks = team.size(), .shared = true, .registered = true};
  return select(op, bytes, topology).algorithm == Algorithm::in_place;
}

bool Sources::offer(const std::byte* data, std::size_t bytes) {
  const std::uint64_t offset = team_.segment().offset_of(data, bytes).value_or(nowhere);
  std::memcpy(team_.payload(), &offset, sizeof offset);
  direct_ = 0;
  note(team_.rank(), offset == nowhere ? nullptr : team_.segment().at(offset));
  return offset != nowhere;
}

void Sources::offer_nothing() {
  std::memcpy(team_.payload(), &nowhere, sizeof nowhere);
  direct_ = 0;
  note(team_.rank(), nullptr);
}

std::byte* Sources::learn(int member) {
  std::uint64_t offset = nowhere;
  std::memcpy(&offset, team_.payload_of(member), sizeof offset);
  note(member, offset == nowhere ? nullptr : team_.segment().at(offset));
  return of(member);
}

void Sources::learn_all() {
  for (int member = 0; member < team_.size(); ++member) {
    if (member != team_.rank()) learn(member);
  }
}

void Sources::note(int member, std::byte* data) {
  team_.source(member) = data;
  if (data != nullptr) ++direct_;
}

}  // namespace dlaunch::algorithms::shared
