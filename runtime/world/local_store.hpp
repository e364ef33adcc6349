#pragma once

#include "runtime/store/core/key_values.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace dlaunch {

/// The store within one process: the same core behind a mutex, no server and no thread. A world of
/// one has it, and worlds whose ranks are threads may share one. A leased key lives as long as the
/// store, since its owner is never lost alone.
class LocalStore final : public Store {
 public:
  LocalStore() = default;

  void set(std::string_view key, BytesView value) override;
  void set_leased(std::string_view key, BytesView value, Clock::duration lease) override;
  std::optional<Bytes> get(std::string_view key) override;
  Bytes wait(std::string_view key, Clock::time_point deadline) override;
  void wait_all(std::span<const std::string> keys, Clock::time_point deadline) override;
  std::int64_t add(std::string_view key, std::int64_t delta) override;
  bool compare_set(std::string_view key, std::optional<BytesView> expected,
                   BytesView desired) override;
  std::size_t append(std::string_view key, BytesView tail) override;
  bool erase(std::string_view key) override;
  std::vector<std::string> list(std::string_view prefix) override;
  std::vector<std::optional<Bytes>> multi_get(std::span<const std::string> keys) override;
  void multi_set(std::span<const std::string> keys, std::span<const Bytes> values) override;
  void push(std::string_view queue, BytesView value) override;
  Bytes pop(std::string_view queue, Clock::time_point deadline) override;
  std::optional<Bytes> try_pop(std::string_view queue) override;
  std::size_t queue_size(std::string_view queue) override;
  KeyChange watch(std::string_view key, Clock::time_point deadline) override;
  void barrier(std::string_view name, int contributor, int count,
               Clock::time_point deadline) override;
  std::vector<Bytes> all_gather(std::string_view name, int contributor, int count, BytesView blob,
                                Clock::time_point deadline) override;

 private:
  using Ask = std::function<void(store::Caller, store::Effects&)>;
  /// Takes an answer out of the core while its views are valid, under the lock.
  using Take = std::function<void(const store::Answer&)>;

  /// Asks the core and waits for the answer; throws what it refuses or times out with.
  void ask(const std::string& what, const Ask& question, const Take& take,
           Clock::time_point deadline = Clock::time_point::max());
  void deliver(const store::Effects& effects);

  std::mutex mutex_;
  std::condition_variable answered_;
  store::KeyValues values_;
  std::uint64_t last_request_ = 0;
  std::map<std::uint64_t, const Take*> pending_;
  std::map<std::string, std::uint64_t, std::less<>> watches_;    ///< By key: the core's request.
  std::map<std::uint64_t, std::deque<KeyChange>> changes_;       ///< Not yet returned, by request.
  std::map<std::pair<std::string, int>, std::uint64_t> rounds_;  ///< By aggregate and contributor.
};

}  // namespace dlaunch
