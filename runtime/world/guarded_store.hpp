#pragma once

#include "runtime/world/member_link.hpp"

#include <memory>

namespace dlaunch {

/// The store of a world, as its users hold it: the link's client, kept alive together with the
/// link, and closed to a forked child (Error{misuse}).
class GuardedStore final : public Store {
 public:
  explicit GuardedStore(std::shared_ptr<MemberLink> link) : link_(std::move(link)) {}

  void set(std::string_view key, BytesView value) override { store().set(key, value); }
  void set_leased(std::string_view key, BytesView value, Clock::duration lease) override {
    store().set_leased(key, value, lease);
  }
  std::optional<Bytes> get(std::string_view key) override { return store().get(key); }
  Bytes wait(std::string_view key, Clock::time_point deadline) override {
    return store().wait(key, deadline);
  }
  void wait_all(std::span<const std::string> keys, Clock::time_point deadline) override {
    store().wait_all(keys, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t delta) override {
    return store().add(key, delta);
  }
  bool compare_set(std::string_view key, std::optional<BytesView> expected,
                   BytesView desired) override {
    return store().compare_set(key, expected, desired);
  }
  std::size_t append(std::string_view key, BytesView tail) override {
    return store().append(key, tail);
  }
  bool erase(std::string_view key) override { return store().erase(key); }
  std::vector<std::string> list(std::string_view prefix) override { return store().list(prefix); }
  std::vector<std::optional<Bytes>> multi_get(std::span<const std::string> keys) override {
    return store().multi_get(keys);
  }
  void multi_set(std::span<const std::string> keys, std::span<const Bytes> values) override {
    store().multi_set(keys, values);
  }
  void push(std::string_view queue, BytesView value) override { store().push(queue, value); }
  Bytes pop(std::string_view queue, Clock::time_point deadline) override {
    return store().pop(queue, deadline);
  }
  std::optional<Bytes> try_pop(std::string_view queue) override { return store().try_pop(queue); }
  std::size_t queue_size(std::string_view queue) override { return store().queue_size(queue); }
  KeyChange watch(std::string_view key, Clock::time_point deadline) override {
    return store().watch(key, deadline);
  }
  void barrier(std::string_view name, int contributor, int count,
               Clock::time_point deadline) override {
    store().barrier(name, contributor, count, deadline);
  }
  std::vector<Bytes> all_gather(std::string_view name, int contributor, int count, BytesView blob,
                                Clock::time_point deadline) override {
    return store().all_gather(name, contributor, count, blob, deadline);
  }

 private:
  Store& store() const { return link_->client(); }

  std::shared_ptr<MemberLink> link_;
};

}  // namespace dlaunch
