#include "rendezvous/state/etcd/batch.hpp"

#include "runtime/base/bytes.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace dlaunch::rendezvous::etcd {
namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::uint32_t>::max();

}  // namespace

Batch::Stage& Batch::stage_for(std::string_view key) {
  const auto& erased = stages_.back().erased;
  if (std::ranges::any_of(erased, [&](const auto& prefix) { return key.starts_with(prefix); })) {
    stages_.emplace_back();
  }
  return stages_.back();
}

void Batch::put(std::string key, std::string value) {
  stage_for(key).keys.insert_or_assign(std::move(key), std::move(value));
}

void Batch::erase(std::string key) {
  stage_for(key).keys.insert_or_assign(std::move(key), std::nullopt);
}

void Batch::erase_all(std::string prefix) {
  Stage& stage = stages_.back();
  const auto first = stage.keys.lower_bound(prefix);
  auto last = first;
  while (last != stage.keys.end() && last->first.starts_with(prefix)) ++last;
  stage.keys.erase(first, last);
  if (std::ranges::find(stage.erased, prefix) == stage.erased.end()) {
    stage.erased.push_back(std::move(prefix));
  }
}

bool Batch::empty() const {
  return std::ranges::all_of(
      stages_, [](const Stage& stage) { return stage.erased.empty() && stage.keys.empty(); });
}

std::vector<std::vector<Operation>> Batch::transactions() const {
  std::vector<std::vector<Operation>> all;
  std::size_t bytes = 0;
  const auto add = [&](Operation operation) {
    const std::size_t size = operation.key.size() + operation.value.size();
    if (all.back().size() == operations_max ||
        (!all.back().empty() && bytes + size > operation_bytes_max)) {
      all.emplace_back();
      bytes = 0;
    }
    bytes += size;
    all.back().push_back(std::move(operation));
  };
  for (const Stage& stage : stages_) {
    all.emplace_back();
    bytes = 0;
    for (const auto& prefix : stage.erased) add({Operation::Kind::erase_all, prefix, {}});
    for (const auto& [key, value] : stage.keys) {
      if (value) {
        add({Operation::Kind::put, key, *value});
      } else {
        add({Operation::Kind::erase, key, {}});
      }
    }
    if (all.back().empty()) all.pop_back();
  }
  return all;
}

namespace {

/// Whether there is a first key behind all keys with this prefix.
bool can_be_prefix(std::string_view key) {
  constexpr char last_byte = '\xff';
  return !key.empty() && key.back() != last_byte;
}

}  // namespace

std::string to_bytes(const std::vector<std::vector<Operation>>& transactions) {
  Bytes bytes;
  ByteWriter out(bytes);
  out.integer(static_cast<std::uint32_t>(transactions.size()));
  for (const auto& operations : transactions) {
    out.integer(static_cast<std::uint32_t>(operations.size()));
    for (const auto& each : operations) {
      out.integer(static_cast<std::uint8_t>(each.kind));
      out.text(each.key);
      out.text(each.value);
    }
  }
  return std::string(as_text(bytes));
}

std::optional<std::vector<std::vector<Operation>>> from_bytes(std::string_view bytes) {
  ByteReader in(as_bytes(bytes));
  std::vector<std::vector<Operation>> transactions;
  for (auto left = in.integer<std::uint32_t>(); left > 0 && in.ok(); --left) {
    auto& operations = transactions.emplace_back();
    for (auto each = in.integer<std::uint32_t>(); each > 0 && in.ok(); --each) {
      const auto kind = in.integer<std::uint8_t>();
      if (kind > static_cast<std::uint8_t>(Operation::Kind::erase_all)) return std::nullopt;
      Operation operation{static_cast<Operation::Kind>(kind), {}, {}};
      operation.key = in.text(no_limit);
      operation.value = in.text(no_limit);
      const bool all = operation.kind == Operation::Kind::erase_all;
      if (all && !can_be_prefix(operation.key)) return std::nullopt;
      operations.push_back(std::move(operation));
    }
  }
  if (!in.complete()) return std::nullopt;
  return transactions;
}

}  // namespace dlaunch::rendezvous::etcd
