#pragma once

#include "runtime/world/member/membership.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch::testing {

/// As if there were no memory to share: everything goes over TCP.
class Apart final : public Membership {
 public:
  explicit Apart(std::shared_ptr<Membership> inner) : inner_(std::move(inner)) {}
  int fd() const override { return inner_->fd(); }
  std::vector<PeerLoss> losses() override { return inner_->losses(); }
  void report(const Error& error, const Claim& claim) noexcept override {
    inner_->report(error, claim);
  }
  void inquire(const std::vector<int>& ranks) noexcept override { inner_->inquire(ranks); }
  std::optional<std::map<int, SeenDoing>> doing() const override { return inner_->doing(); }
  unique_fd take_listener() override { return inner_->take_listener(); }
  std::shared_ptr<Segment> segment() override { return nullptr; }
  std::optional<Key> data_key() const override { return inner_->data_key(); }
  void drain_output(Clock::time_point deadline) override { inner_->drain_output(deadline); }

 private:
  std::shared_ptr<Membership> inner_;
};

}  // namespace dlaunch::testing
