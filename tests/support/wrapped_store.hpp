#pragma once

#include <dlaunch/store.hpp>

#include <memory>
#include <utility>

namespace dlaunch::testing {

/// A store of the program's own, which passes its six calls on: a test's store overrides what it is
/// about.
class WrappedStore : public Store {
 public:
  explicit WrappedStore(std::shared_ptr<Store> within) : within_(std::move(within)) {}

  void set(std::string_view key, BytesView value) override { within_->set(key, value); }
  std::optional<Bytes> get(std::string_view key) override { return within_->get(key); }
  Bytes wait(std::string_view key, Clock::time_point deadline) override {
    return within_->wait(key, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t delta) override {
    return within_->add(key, delta);
  }
  bool compare_set(std::string_view key, std::optional<BytesView> expected,
                   BytesView desired) override {
    return within_->compare_set(key, expected, desired);
  }
  bool erase(std::string_view key) override { return within_->erase(key); }

 private:
  std::shared_ptr<Store> within_;
};

}  // namespace dlaunch::testing
