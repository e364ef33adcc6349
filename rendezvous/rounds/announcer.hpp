#pragma once

#include "rendezvous/rounds/rounds.hpp"

#include <cstddef>
#include <utility>

namespace dlaunch::rendezvous {

/// Collects the effects of one event, and keeps the sentence that all nodes have heard last.
class Announcer {
 public:
  template <class Effect>
  void put(Effect effect) {
    effects_.emplace_back(std::in_place_type<Effect>, std::move(effect));
  }
  /// So many more come: each effect is large, and moving them again and again costs much.
  void expect(std::size_t count) { effects_.reserve(effects_.size() + count + few); }
  /// Tells all nodes how things stand, unless they have heard this very sentence.
  void stand(std::string sentence, Clock::time_point now) {
    if (standing_ == sentence) return;
    standing_ = std::move(sentence);
    told_ = now;
    put(Standing{0, standing_});
  }
  /// The next sentence is told even if it says the same: some nodes have not heard this one.
  void forget_standing() { standing_.clear(); }
  void finish(Finish end) {
    standing_ = end.sentence;
    put(std::move(end));
  }
  Effects take() { return std::exchange(effects_, {}); }

  const std::string& standing() const { return standing_; }
  /// When all were told last.
  std::optional<Clock::time_point> told() const { return told_; }

 private:
  static constexpr std::size_t few = 4;  ///< What is said beside them.
  Effects effects_;
  std::string standing_;
  std::optional<Clock::time_point> told_;
};

}  // namespace dlaunch::rendezvous
