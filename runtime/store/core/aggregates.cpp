#include "runtime/store/core/aggregates.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <cstring>

namespace dlaunch::store {
namespace {

/// The bytes that one contribution takes.
std::size_t blob_bytes(BytesView blob) { return blob.size() + sizeof(std::pair<int, Bytes>); }

/// The blobs in order of contributor, each behind its u32 size.
std::shared_ptr<const Bytes> join(std::vector<std::pair<int, Bytes>>& blobs, std::size_t size) {
  std::ranges::sort(blobs, {}, &std::pair<int, Bytes>::first);
  auto block = std::make_shared<Bytes>();
  block->reserve(size);
  for (const auto& [contributor, blob] : blobs) {
    const auto length = static_cast<std::uint32_t>(blob.size());
    const auto* raw = reinterpret_cast<const std::byte*>(&length);
    block->insert(block->end(), raw, raw + sizeof length);
    block->insert(block->end(), blob.begin(), blob.end());
  }
  return block;
}

}  // namespace

std::string Aggregates::objection(const Contribution& what, const Aggregate& to) const {
  const std::string name = name_in_quotes(what.name);
  if (what.round + 1 < to.round || (what.round < to.round && !to.has_last)) {
    return name + ": round " + std::to_string(what.round) + " is over, the others are in round " +
           std::to_string(to.round);
  }
  if (what.round > to.round) {
    return name + ": round " + std::to_string(what.round) +
           " cannot begin, the others are in round " + std::to_string(to.round) +
           "; every rank must make the same calls in the same order";
  }
  if (what.round == to.round && to.count != 0 && to.count != what.count) {
    return name + ": called for " + std::to_string(what.count) + " contributors, but others said " +
           std::to_string(to.count);
  }
  return {};
}

std::size_t Aggregates::held_by(const Aggregate& aggregate) {
  std::size_t bytes = aggregate.arrived.size() / 8 + (aggregate.last ? aggregate.last->size() : 0);
  for (const auto& [contributor, blob] : aggregate.blobs) bytes += blob_bytes(blob);
  return bytes;
}

void Aggregates::finish(Aggregate& aggregate) {
  std::size_t size = 0;
  for (const auto& [contributor, blob] : aggregate.blobs)
    size += sizeof(std::uint32_t) + blob.size();
  aggregate.last_too_big.clear();
  aggregate.last.reset();
  if (size > block_bytes_max_) {
    aggregate.last_too_big = "all contributions together have " + std::to_string(size) +
                             " bytes, more than " + std::to_string(block_bytes_max_);
  } else if (!aggregate.blobs.empty()) {
    aggregate.last = join(aggregate.blobs, size);
  }
  aggregate.has_last = true;
  ++aggregate.round;
  aggregate.count = 0;
  aggregate.arrived_count = 0;
  aggregate.arrived.clear();
  aggregate.blobs.clear();
  aggregate.blobs.shrink_to_fit();
}

Aggregates::Verdict Aggregates::contribute(const Contribution& what) {
  auto found = aggregates_.find(what.name);
  if (found == aggregates_.end()) {
    found = aggregates_.emplace(std::string(what.name), Aggregate{}).first;
    found->second.round = what.round;
    bytes_ += what.name.size() + sizeof(Aggregate);
  }
  Aggregate& aggregate = found->second;
  if (std::string reason = objection(what, aggregate); !reason.empty()) {
    return {State::refused, std::move(reason), nullptr, {}};
  }
  if (what.round < aggregate.round)
    return {State::over, {}, aggregate.last, aggregate.last_too_big};

  if (aggregate.count == 0) {
    aggregate.count = what.count;
    aggregate.arrived.assign(static_cast<std::size_t>(what.count), false);
    bytes_ += aggregate.arrived.size() / 8;
  }
  for (std::size_t i = 0; i < what.contributors.size(); ++i) {
    const int contributor = what.contributors[i];
    auto arrived = aggregate.arrived[static_cast<std::size_t>(contributor)];
    if (arrived) continue;
    arrived = true;
    ++aggregate.arrived_count;
    if (what.blobs.empty()) continue;
    aggregate.blobs.emplace_back(contributor, Bytes(what.blobs[i].begin(), what.blobs[i].end()));
    bytes_ += blob_bytes(what.blobs[i]);
  }
  if (aggregate.arrived_count < aggregate.count) return {State::waiting, {}, nullptr, {}};
  bytes_ -= held_by(aggregate);
  finish(aggregate);
  bytes_ += held_by(aggregate);
  return {State::complete, {}, aggregate.last, aggregate.last_too_big};
}

void Aggregates::restore(std::string_view name, std::uint64_t round,
                         std::shared_ptr<const Bytes> block, std::string_view too_big) {
  const auto [at, is_new] = aggregates_.emplace(std::string(name), Aggregate{});
  if (!is_new) return;
  Aggregate& aggregate = at->second;
  aggregate.round = round + 1;
  aggregate.has_last = true;
  aggregate.last = std::move(block);
  aggregate.last_too_big = too_big;
  bytes_ += name.size() + sizeof(Aggregate) + held_by(aggregate);
}

bool Aggregates::lacks(std::string_view name, int contributor, int count) const {
  const auto found = aggregates_.find(name);
  return found != aggregates_.end() && found->second.count == count && contributor < count &&
         !found->second.arrived[static_cast<std::size_t>(contributor)];
}

std::pair<std::vector<int>, std::size_t> Aggregates::missing(std::string_view name,
                                                             std::size_t most) const {
  std::vector<int> first;
  const auto found = aggregates_.find(name);
  if (found == aggregates_.end() || found->second.count == 0) return {first, 0};
  const Aggregate& aggregate = found->second;
  const auto lacking = static_cast<std::size_t>(aggregate.count - aggregate.arrived_count);
  for (std::size_t i = 0; i < aggregate.arrived.size() && first.size() < most; ++i) {
    if (!aggregate.arrived[i]) first.push_back(static_cast<int>(i));
  }
  return {first, lacking};
}

}  // namespace dlaunch::store
