#pragma once

#include "runtime/base/notice.hpp"
#include "runtime/store/server/server.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace dlaunch::rendezvous {

/// Keeps refused strangers from filling the log. The first refusal of each kind gets a line; after
/// it there is one line in each `period` at most, with the last refusal and their number. Pure.
class RefusalLog {
 public:
  static constexpr Clock::duration period = std::chrono::seconds(60);
  using Tell = std::function<void(std::string sentence)>;
  using Counts = std::array<std::uint64_t, store::refusal_kinds>;

  /// Adds a refusal; calls `tell` at once if its kind has been quiet.
  void add(store::RefusalKind kind, std::string sentence, Clock::time_point now, const Tell& tell);
  /// Tells of refusals whose period has ended.
  void tick(Clock::time_point now, const Tell& tell);
  std::optional<Clock::time_point> next_deadline() const;
  /// The total number, by kind.
  const Counts& counts() const { return counts_; }

 private:
  struct Kind {
    std::optional<Clock::time_point> until;  ///< The period's end; nullopt: it has been quiet.
    std::uint64_t untold = 0;
    std::string last;
  };
  std::array<Kind, store::refusal_kinds> kinds_;
  Counts counts_{};
};

}  // namespace dlaunch::rendezvous
