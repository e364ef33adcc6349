#pragma once

#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

/// Ranks that make different calls, in tests whose file begins with "disagreement_".
namespace dlaunch::testing {

/// A call, and what it is called: "all_reduce #2 (sum, f32, 8 elements)".
struct DifferingCall {
  std::string text;
  std::function<void(Communicator&)> make;
};
using DifferingCalls = std::vector<DifferingCall>;

/// The outcomes of the ranks, and the time until the last one was told, from when the second one
/// had come.
struct Disagreement {
  std::vector<Outcome> outcomes;
  Clock::duration took{};
};

/// Each rank makes its own call, then as many barriers as it takes to hear of the others.
inline Disagreement disagree(const DifferingCalls& calls) {
  std::vector<Clock::time_point> came(calls.size()), told(calls.size());
  Disagreement result;
  result.outcomes = run_ranks(static_cast<int>(calls.size()), [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(std::chrono::seconds(20));
    comm.barrier();
    const auto me = static_cast<std::size_t>(comm.rank());
    came[me] = Clock::now();
    try {
      calls[me].make(comm);
      comm.barrier();
      comm.barrier();
    } catch (const Error&) {
      told[me] = Clock::now();
      throw;
    }
  });
  std::nth_element(came.begin(), came.begin() + 1, came.end());
  result.took = *std::max_element(told.begin(), told.end()) - came[1];
  return result;
}

/// That a rank which made such a call is named with it and its place in the program.
inline bool tells(const Outcome& outcome, const DifferingCalls& calls, const std::string& text) {
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    if (calls[rank].text != text) continue;
    for (const char* verb : {" is in ", " made "}) {
      const std::string told = "rank " + std::to_string(rank) + verb + text;
      if (outcome.mentions(told + " [disagreement_")) return true;
    }
  }
  return false;
}

/// The number of different calls of which a rank is told, with who made them and where.
inline int count_told(const Outcome& outcome, const DifferingCalls& calls) {
  int told = 0;
  std::vector<std::string> seen;
  for (const DifferingCall& call : calls) {
    if (std::find(seen.begin(), seen.end(), call.text) != seen.end()) continue;
    seen.push_back(call.text);
    told += tells(outcome, calls, call.text) ? 1 : 0;
  }
  return told;
}

/// Every call that the text says a rank is in, or made, is one of that rank's.
inline void check_true(const std::string& text, const DifferingCalls& calls) {
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    for (const std::string verb : {" is in ", " made "}) {
      const std::string begin = "rank " + std::to_string(rank) + verb;
      for (auto at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
        const std::string_view said = std::string_view(text).substr(at + begin.size());
        CAPTURE(said);
        CHECK((said.starts_with(calls[rank].text) || said.starts_with("barrier #3") ||
               said.starts_with("barrier #4")));
      }
    }
  }
}

/// How often ranks were made to disagree, and how often that had to be done again.
struct Repeats {
  std::atomic<int> checks{0};
  std::atomic<int> repeats{0};
  /// One of ten; the first may come early.
  bool is_seldom() const { return repeats * 10 <= checks + 9; }
};
inline Repeats& repeats() {
  static Repeats all;  // For the whole program: a share cannot be told within one test case.
  return all;
}

/// All ranks get Error{mismatch} which `says` what it is to say, within a second. If another rank's
/// news are not enough, that rank itself tells what it has called and where, and has half a second
/// for it. It may not get that where other processes keep the machine busy: then less is told, and
/// nothing that is wrong. One repeat makes up for that, and only one check of ten may take it.
inline void check_outcomes(const DifferingCalls& calls,
                           const std::function<bool(const Outcome&)>& says) {
  ++repeats().checks;
  const auto is_right = [&](const Disagreement& seen) {
    for (const auto& outcome : seen.outcomes) {
      CHECK_MESSAGE(outcome.code == Errc::mismatch, outcome.text);
      check_true(outcome.text, calls);
    }
    return seen.took < std::chrono::seconds(1) &&
           std::all_of(seen.outcomes.begin(), seen.outcomes.end(), says);
  };
  if (is_right(disagree(calls))) return;
  ++repeats().repeats;
  CHECK_MESSAGE(repeats().is_seldom(), repeats().repeats.load()
                                           << " repeats in " << repeats().checks.load());
  const Disagreement last = disagree(calls);
  if (is_right(last)) return;
  CHECK(last.took < std::chrono::seconds(1));
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    CAPTURE(rank);
    CAPTURE(last.outcomes[rank].text);
    CHECK(says(last.outcomes[rank]));
  }
}

/// Each rank is told both calls; of several that differ from the others', one of them.
inline void check_told(const DifferingCalls& calls) {
  check_outcomes(calls, [&](const Outcome& outcome) { return count_told(outcome, calls) == 2; });
}

/// In worlds of several sizes, one rank apart from the others in each direction.
inline void check_pair(const DifferingCall& one, const DifferingCall& other,
                       const std::vector<std::size_t>& sizes = {2, 3, 5}) {
  for (const std::size_t size : sizes) {
    for (const bool turned : {false, true}) {
      for (const std::size_t apart : {std::size_t{0}, size - 1}) {
        DifferingCalls calls(size, turned ? other : one);
        calls[apart] = turned ? one : other;
        CAPTURE(size);
        CAPTURE(apart);
        CAPTURE(calls[apart].text);
        check_told(calls);
      }
    }
  }
}

/// The same once each way, where many calls are compared.
inline void check_both_ways(const DifferingCall& one, const DifferingCall& other) {
  CAPTURE(one.text);
  CAPTURE(other.text);
  check_told({one, other});
  check_told({other, one, one});
}

}  // namespace dlaunch::testing
