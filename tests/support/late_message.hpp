#pragma once

#include "runtime/store/server/late_message.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch::test {

/// A message of some text, which notes that it is made; to make it may take longer than a turn.
class NotedMessage final : public store::LateMessage {
 public:
  NotedMessage(std::string text, std::vector<std::string>& made, Clock::duration takes = {})
      : text_(std::move(text)), made_(made), takes_(takes) {}
  wire::Type type() const override { return wire::Type::report; }
  void encode(Bytes& out) const override {
    made_.push_back(text_);
    for (const auto end = Clock::now() + takes_; Clock::now() < end;) continue;
    const BytesView bytes = as_bytes(text_);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }

 private:
  const std::string text_;
  std::vector<std::string>& made_;
  const Clock::duration takes_;
};

}  // namespace dlaunch::test
