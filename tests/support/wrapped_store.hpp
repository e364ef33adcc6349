#pragma once

#include <dlaunch/store.hpp>

#include <memory>
#include <utility>

namespace dlaunch::testing {

/// Passes every request on: a test's own store overrides what it is about.
class WrappedStore : public Store {
 public:
  explicit WrappedStore(std::shared_ptr<Store> within) : within_(std::move(within)) {}

  void set(std::string_view key, BytesView value) override { within_->set(key, value); }
  void set_leased(std::string_view key, BytesView value, Clock::duration lease) override {
    within_->set_leased(key, value, lease);
  }
  std::optional<Bytes> get(std::string_view key) override { return within_->get(key); }
  Bytes wait(std::string_view key, Clock::time_point deadline) override {
    return within_->wait(key, deadline);
  }
  void wait_all(std::span<const std::string> keys, Clock::time_point deadline) override {
    within_->wait_all(keys, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t delta) override {
    return within_->add(key, delta);
  }
  bool compare_set(std::string_view key, std::optional<BytesView> expected,
                   BytesView desired) override {
    return within_->compare_set(key, expected, desired);
  }
  std::size_t append(std::string_view key, BytesView tail) override {
    return within_->append(key, tail);
  }
  bool erase(std::string_view key) override { return within_->erase(key); }
  std::vector<std::string> list(std::string_view prefix) override { return within_->list(prefix); }
  std::vector<std::optional<Bytes>> multi_get(std::span<const std::string> keys) override {
    return within_->multi_get(keys);
  }
  void multi_set(std::span<const std::string> keys, std::span<const Bytes> values) override {
    within_->multi_set(keys, values);
  }
  void push(std::string_view queue, BytesView value) override { within_->push(queue, value); }
  Bytes pop(std::string_view queue, Clock::time_point deadline) override {
    return within_->pop(queue, deadline);
  }
  std::optional<Bytes> try_pop(std::string_view queue) override { return within_->try_pop(queue); }
  std::size_t queue_size(std::string_view queue) override { return within_->queue_size(queue); }
  KeyChange watch(std::string_view key, Clock::time_point deadline) override {
    return within_->watch(key, deadline);
  }
  void barrier(std::string_view name, int contributor, int count,
               Clock::time_point deadline) override {
    within_->barrier(name, contributor, count, deadline);
  }
  std::vector<Bytes> all_gather(std::string_view name, int contributor, int count, BytesView blob,
                                Clock::time_point deadline) override {
    return within_->all_gather(name, contributor, count, blob, deadline);
  }

 private:
  std::shared_ptr<Store> within_;
};

}  // namespace dlaunch::testing
