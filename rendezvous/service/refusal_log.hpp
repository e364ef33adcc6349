#pragma once

#include "runtime/base/notice.hpp"
#include "runtime/store/server/server.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace dlaunch::rendezvous {

/// Keeps refused strangers from filling the log. The first refusal of each kind gets a line, and so
/// do the first few nodes that a job refuses; after them there is one line in each `period` at
/// most, with the last refusal and their number. Pure.
class RefusalLog {
 public:
  static constexpr Clock::duration period = std::chrono::seconds(60);
  /// How many nodes of a job get a line of their own in a period, and how many jobs are told apart.
  static constexpr int nodes_told_max = 10;
  static constexpr std::size_t jobs_max = 64;
  /// `job` is empty for connections that belong to none.
  using Tell = std::function<void(const std::string& job, std::string sentence)>;
  using Counts = std::array<std::uint64_t, store::refusal_kinds>;

  /// Adds a refusal; calls `tell` at once if its kind has been quiet.
  void add(store::RefusalKind kind, std::string sentence, Clock::time_point now, const Tell& tell);
  /// Adds a node that came to `job` and was refused. Where that is no job here (`known`), its
  /// name may be any, and is not told apart from other such names. These are not in counts().
  void add_node(const std::string& job, bool known, std::string sentence, Clock::time_point now,
                const Tell& tell);
  /// Tells of refusals whose period has ended.
  void tick(Clock::time_point now, const Tell& tell);
  std::optional<Clock::time_point> next_deadline() const;
  /// The total number, by kind.
  const Counts& counts() const { return counts_; }

 private:
  /// Refusals of one kind, or of one job's nodes.
  struct Kind {
    std::optional<Clock::time_point> until;  ///< The period's end; nullopt: it has been quiet.
    int told = 0;                            ///< Lines in this period.
    std::uint64_t untold = 0;
    std::string job, last;  ///< Of the last one that was not told.

    void add(const std::string& of, std::string sentence, int lines_max, Clock::time_point now,
             const Tell& tell);
    void tick(Clock::time_point now, std::string_view whose, const Tell& tell);
  };
  std::array<Kind, store::refusal_kinds> kinds_;
  std::map<std::string, Kind, std::less<>> nodes_;  ///< By job; empty: of all others.
  Counts counts_{};
};

}  // namespace dlaunch::rendezvous
