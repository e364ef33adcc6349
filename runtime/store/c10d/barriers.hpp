#pragma once

#include "runtime/store/core/key_values.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace dlaunch::c10d {

/// The table of clients that wait in PyTorch's barriers, one for each c10d namespace. Arrivals are
/// anonymous and are counted under the barrier's own key, which stays visible and is never reset: a
/// barrier's key is good for one use. Pure; not thread-safe.
class Barriers {
 public:
  /// Counts `by`'s arrival in `values`. Answered Done when the count has reached `world`, at once
  /// or by a later arrival; Refused where the key holds no number. Answers to others, the barrier's
  /// waiters and those who wait for its key, are appended as well.
  void arrive(store::KeyValues& values, store::Caller by, std::string_view key, std::int64_t world,
              store::Effects& out);
  /// Ends a wait without an answer; its arrival stays counted.
  void cancel(store::Caller by, std::string_view key);

  /// The number of barriers with waiting clients.
  std::size_t size() const { return barriers_.size(); }

 private:
  using Place = std::pair<std::uint64_t, std::uint64_t>;  ///< Client and request.
  using Waiters = std::map<Place, std::int64_t>;          ///< Each with the number it waits for.
  std::map<std::string, Waiters, std::less<>> barriers_;
};

}  // namespace dlaunch::c10d
