#include "runtime/store/core/aggregates.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>

namespace dlaunch::store {
namespace {

/// The bytes of an open round in its table, besides its name.
constexpr std::size_t open_bytes = 80;

/// What one contribution takes.
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
  const int count = to.arrived.count();
  if (what.round == to.round && count != 0 && count != what.count) {
    return name + ": called for " + std::to_string(what.count) + " contributors, but others said " +
           std::to_string(count);
  }
  return {};
}

std::size_t Aggregates::held_by(const Aggregate& aggregate) {
  std::size_t bytes = aggregate.arrived.bytes() + (aggregate.last ? aggregate.last->size() : 0);
  for (const auto& [contributor, blob] : aggregate.blobs) bytes += blob_bytes(blob);
  return bytes;
}

void Aggregates::open(const Contribution& what, Aggregate& aggregate) {
  Arrivals none(what.count);
  open_[what.count].emplace(what.name);
  aggregate.arrived = std::move(none);
  bytes_ += aggregate.arrived.bytes() + what.name.size() + open_bytes;
}

void Aggregates::finish(std::string_view name, Aggregate& aggregate) {
  std::size_t size = 0;
  for (const auto& [contributor, blob] : aggregate.blobs)
    size += sizeof(std::uint32_t) + blob.size();
  std::string too_big;
  std::shared_ptr<const Bytes> block;
  if (size > block_bytes_max_) {
    too_big = "all contributions together have " + std::to_string(size) + " bytes, more than " +
              std::to_string(block_bytes_max_);
  } else if (!aggregate.blobs.empty()) {
    block = counted(join(aggregate.blobs, size), memory_);
  }
  // From here on nothing takes memory, so that the round is over, or is not.
  const auto alike = open_.find(aggregate.arrived.count());
  alike->second.erase(alike->second.find(name));
  if (alike->second.empty()) open_.erase(alike);
  bytes_ -= held_by(aggregate) + name.size() + open_bytes;
  if (aggregate.last) block_bytes_ -= aggregate.last->size();
  aggregate.last_too_big = std::move(too_big);
  aggregate.last = std::move(block);
  aggregate.has_last = true;
  ++aggregate.round;
  aggregate.arrived = {};
  aggregate.blobs = {};
  bytes_ += held_by(aggregate);
  if (aggregate.last) block_bytes_ += aggregate.last->size();
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

  if (aggregate.arrived.count() == 0) open(what, aggregate);
  for (std::size_t i = 0; i < what.contributors.size(); ++i) {
    const int contributor = what.contributors[i];
    if (what.blobs.empty()) {
      aggregate.arrived.add(contributor);
      continue;
    }
    // It has not arrived without its blob.
    aggregate.blobs.emplace_back(contributor, Bytes(what.blobs[i].begin(), what.blobs[i].end()));
    if (aggregate.arrived.add(contributor)) {
      bytes_ += blob_bytes(what.blobs[i]);
    } else {
      aggregate.blobs.pop_back();
    }
  }
  if (aggregate.arrived.lacking() > 0) return {State::waiting, {}, nullptr, {}};
  finish(what.name, aggregate);
  return {State::complete, {}, aggregate.last, aggregate.last_too_big};
}

void Aggregates::restore(std::string_view name, std::uint64_t round,
                         std::shared_ptr<const Bytes> block, std::string_view too_big) {
  const auto [at, is_new] = aggregates_.emplace(std::string(name), Aggregate{});
  if (!is_new) return;
  Aggregate& aggregate = at->second;
  aggregate.round = round + 1;
  aggregate.has_last = true;
  aggregate.last = counted(std::move(block), memory_);
  if (aggregate.last) block_bytes_ += aggregate.last->size();
  aggregate.last_too_big = too_big;
  bytes_ += name.size() + sizeof(Aggregate) + held_by(aggregate);
}

const Arrivals* Aggregates::arrivals(std::string_view name) const {
  const auto found = aggregates_.find(name);
  if (found == aggregates_.end() || found->second.arrived.count() == 0) return nullptr;
  return &found->second.arrived;
}

std::vector<std::pair<std::string, int>> Aggregates::lacking(Contributors these, int world) const {
  std::vector<std::pair<std::string, int>> found;
  const auto alike = open_.find(world);
  if (alike == open_.end()) return found;
  for (const std::string& name : alike->second) {
    const int first = arrivals(name)->first_missing(these.first, these.end());
    if (first < these.end()) found.emplace_back(name, first);
  }
  return found;
}

Arrivals::Missing Aggregates::missing(std::string_view name, std::size_t most) const {
  const Arrivals* arrived = arrivals(name);
  return arrived == nullptr ? Arrivals::Missing{} : arrived->missing(most);
}

}  // namespace dlaunch::store
