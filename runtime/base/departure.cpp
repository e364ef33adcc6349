#include "runtime/base/departure.hpp"

#include "runtime/base/phrases.hpp"

namespace dlaunch {

/// A rank that ended because of a lost rank names that one: others may not learn of it in any other
/// way.
Departure Departure::of(const Fact& fact) {
  if (fact.end == Fact::End::left) return {.kind = Kind::left};
  Departure how{Kind::ended, fact.exit_code, fact.signal, fact.core_dumped};
  if (fact.was_struck() || !fact.claim || fact.claim->fault != Fault::lost) return how;
  const auto& lost = fact.claim->ranks;
  // A rank that heard of the loss from another may not know which rank was lost.
  if (!lost.empty()) how.missed = lost.front();
  if (lost.empty() && fact.failed()) how.missed = some_rank;
  return how;
}

std::string text_of(const Departure& departure) {
  switch (departure.kind) {
    case Departure::Kind::left:
      return left_text;
    case Departure::Kind::ended:
      break;
    case Departure::Kind::otherwise:
      return departure.words;
  }
  std::string text = end_text(departure.exit_code, departure.signal, departure.core_dumped);
  if (!departure.missed) return text;
  return text + ", for the loss of " +
         (*departure.missed == Departure::some_rank ? std::string("another rank")
                                                    : "rank " + std::to_string(*departure.missed));
}

}  // namespace dlaunch
