#include "runtime/base/phrases.hpp"

#include <dlaunch/store.hpp>

/// Functions that take several requests to a store with six calls, and one to ours.
namespace dlaunch {
namespace {

JobStore* whole(Store& store) { return dynamic_cast<JobStore*>(&store); }

}  // namespace

void wait_all(Store& store, std::span<const std::string> keys, Clock::time_point deadline) {
  if (auto* const ours = whole(store)) return ours->wait_all(keys, deadline);
  std::string missing;
  for (const std::string& key : keys) {
    try {
      static_cast<void>(store.wait(key, deadline));
    } catch (const Error& error) {
      if (error.errc() != Errc::timeout) throw;
      missing += (missing.empty() ? "" : ", ") + in_quotes(key);
    }
  }
  if (missing.empty()) return;
  throw Error(Errc::timeout, "the program's store did not get " + missing + " in time");
}

std::size_t append(Store& store, std::string_view key, BytesView tail) {
  if (auto* const ours = whole(store)) return ours->append(key, tail);
  for (;;) {
    const auto current = store.get(key);
    Bytes longer = current.value_or(Bytes());
    longer.insert(longer.end(), tail.begin(), tail.end());
    std::optional<BytesView> expected;
    if (current) expected = *current;
    if (store.compare_set(key, expected, longer)) return longer.size();
  }
}

std::vector<std::optional<Bytes>> multi_get(Store& store, std::span<const std::string> keys) {
  if (auto* const ours = whole(store)) return ours->multi_get(keys);
  std::vector<std::optional<Bytes>> values;
  for (const std::string& key : keys) values.push_back(store.get(key));
  return values;
}

void multi_set(Store& store, std::span<const std::string> keys, std::span<const Bytes> values) {
  if (auto* const ours = whole(store)) return ours->multi_set(keys, values);
  for (std::size_t i = 0; i < keys.size(); ++i) store.set(keys[i], values[i]);
}

void barrier(Store& store, std::string_view name, int contributor, int count,
             Clock::time_point deadline) {
  if (auto* const ours = whole(store)) return ours->barrier(name, contributor, count, deadline);
  static_cast<void>(all_gather(store, name, contributor, count, {}, deadline));
}

/// Each round has keys of its own. A rank that has finished a round knows that all have begun it,
/// so all have finished the round before, whose key can go.
std::vector<Bytes> all_gather(Store& store, std::string_view name, int contributor, int count,
                              BytesView blob, Clock::time_point deadline) {
  if (auto* const ours = whole(store)) {
    return ours->all_gather(name, contributor, count, blob, deadline);
  }
  const std::string prefix = std::string(name) + "/";
  if (contributor < 0 || contributor >= count) {
    throw Error(Errc::misuse, in_quotes(name) + ": contributor " + std::to_string(contributor) +
                                  " is none of " + std::to_string(count));
  }
  const auto key = [&](std::int64_t turn, int rank) {
    return prefix + std::to_string(turn) + "/" + std::to_string(rank);
  };
  const std::int64_t turn = store.add(prefix + "turn/" + std::to_string(contributor), 1);
  store.set(key(turn, contributor), blob);
  std::vector<std::string> keys;
  for (int rank = 0; rank < count; ++rank) keys.push_back(key(turn, rank));
  wait_all(store, keys, deadline);
  std::vector<Bytes> blobs;
  for (const std::string& each : keys) blobs.push_back(store.wait(each, deadline));
  store.erase(key(turn - 1, contributor));
  return blobs;
}

}  // namespace dlaunch
