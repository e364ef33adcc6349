// The rules by which a root cause is found, one story each.
#include "runtime/base/verdict.hpp"

#include "tests/support/verdict_kind.hpp"

#include <csignal>

#include <doctest/doctest.h>

namespace dlaunch {
namespace {

using Kind = Verdict::Kind;

Clock::time_point at_ms(int ms) { return Clock::time_point(std::chrono::milliseconds(ms)); }

/// The facts of a story, put together rank by rank.
struct Story {
  Facts facts;

  Fact& rank(int number) {
    Fact& fact = facts.ranks[number];
    fact.rank = number;
    return fact;
  }
  Story& exited(int number, int code, int ms = 5) {
    Fact& fact = rank(number);
    fact.end = code == 0 ? Fact::End::left : Fact::End::failed;
    fact.exit_code = code;
    fact.when = at_ms(ms);
    return *this;
  }
  Story& died(int number, int signal, int ms = 5) {
    Fact& fact = rank(number);
    fact.end = Fact::End::failed;
    fact.signal = signal;
    fact.when = at_ms(ms);
    return *this;
  }
  Story& blames(int number, Fault fault, std::vector<int> ranks, std::vector<Vote> votes = {}) {
    rank(number).claim = Claim{fault, std::move(ranks), 7, 3, std::move(votes)};
    return *this;
  }
  /// "failed 1 code=3"; "none".
  std::string told() const {
    const auto verdict = judge(facts);
    if (!verdict) return "none";
    std::string text = testing::name_of(verdict->kind);
    for (const int number : verdict->ranks) text += " " + std::to_string(number);
    return text + " code=" + std::to_string(verdict->exit_code);
  }
};

}  // namespace

TEST_CASE("a rank that failed by itself is the cause, the earliest of several") {
  CHECK(Story().told() == "none");
  CHECK(Story().exited(0, 0).exited(1, 0).told() == "none");
  CHECK(Story().exited(1, 3).told() == "failed 1 code=3");
  CHECK(Story().exited(0, 4, 9).exited(1, 3, 8).told() == "failed 1 code=3");
  CHECK(Story().exited(0, 4, 8).exited(1, 3, 8).told() == "failed 0 code=4");
  CHECK(Story().died(2, SIGABRT).told() == "failed 2 code=134");
}

TEST_CASE("a rank that was struck comes before those that exited at the same time") {
  CHECK(Story().exited(0, 1, 5).died(1, SIGKILL, 9).told() == "failed 1 code=137");
  CHECK(Story().exited(0, 1, 5).died(1, SIGABRT, 9).told() == "failed 0 code=1");
  CHECK(Story().exited(0, 1, 5).died(1, SIGKILL, 1006).told() == "failed 0 code=1");
}

TEST_CASE("a victim's claim leads to the cause, over as many victims as there are") {
  CHECK(Story()
            .exited(0, 75, 1)
            .blames(0, Fault::lost, {1})
            .exited(1, 75, 2)
            .blames(1, Fault::lost, {2})
            .died(2, SIGKILL, 3)
            .told() == "failed 2 code=137");
  // It blames somebody, and died of something else.
  CHECK(Story().died(0, SIGSEGV, 1).blames(0, Fault::lost, {1}).exited(1, 0).told() ==
        "failed 0 code=139");
  // It was told by another one, and knows no name.
  CHECK(Story().exited(0, 75, 1).blames(0, Fault::lost, {}).exited(1, 3, 9).told() ==
        "failed 1 code=3");
  CHECK(Story().exited(0, 75, 1).blames(0, Fault::lost, {}).told() == "failed 0 code=75");
}

TEST_CASE("one that left early is the cause, and the first that waited gives the code") {
  Story story;
  story.exited(2, 0).exited(0, 5, 9).blames(0, Fault::lost, {2});
  story.exited(1, 4, 8).blames(1, Fault::lost, {0});
  CHECK(story.told() == "left 2 code=4");
  // By a range of a node all of whose ranks left.
  Story node;
  node.exited(0, 75).blames(0, Fault::lost, {5});
  node.facts.left = {{4, 4}};
  CHECK(node.told() == "left 5 code=75");
  node.facts.left = {{1, 4}, {6, 2}};
  CHECK(node.told() == "lost 5 code=75");
}

TEST_CASE("why a rank was lost that ran on is told by those that lost it") {
  Story story;
  story.exited(0, 75).blames(0, Fault::lost, {1});
  story.rank(0).claim->doing = "it destroyed its communicator";
  CHECK(story.told() == "lost 1 code=75");
  const auto name = [](int rank) { return "rank " + std::to_string(rank) + " on h"; };
  CHECK(sentence_of(*judge(story.facts), name) ==
        "rank 1 on h was lost to the others while it ran: it destroyed its communicator");
  // A rank that failed has its own end to tell.
  CHECK(sentence_of(*judge(story.exited(1, 3).facts), name) == "rank 1 on h exited with 3");
}

TEST_CASE("ranks of a lost node are the cause where nobody failed by itself") {
  Story story;
  story.exited(0, 75).blames(0, Fault::lost, {3});
  story.facts.lost = {{2, 2}};
  CHECK(story.told() == "node_lost 3 code=75");
  CHECK(story.exited(1, 3).told() == "failed 1 code=3");
}

TEST_CASE("an absent rank is the cause, whatever it does when it hears of it") {
  Story story;
  story.exited(0, 6, 8).blames(0, Fault::absent, {1});
  story.rank(0).claim->doing = "stopped by a signal, in no call for 2.1 s";
  CHECK(story.told() == "absent 1 code=6");
  const auto name = [](int rank) { return "rank " + std::to_string(rank) + " on h"; };
  CHECK(sentence_of(*judge(story.facts), name) ==
        "rank 1 on h did not come in time: stopped by a signal, in no call for 2.1 s");
  // It comes late and is told, or finds the others gone.
  CHECK(Story(story).exited(1, 9, 1).blames(1, Fault::absent, {1}).told() == "absent 1 code=6");
  CHECK(Story(story).exited(1, 9, 1).blames(1, Fault::lost, {0}).told() == "absent 1 code=6");
  // It waits for another one itself, or has failed.
  CHECK(Story(story).blames(1, Fault::absent, {2}).told() == "absent 2 code=6");
  CHECK(Story(story).exited(1, 3, 9).told() == "failed 1 code=3");
  CHECK(Story(story).exited(1, 0).told() == "left 1 code=6");
}

TEST_CASE("of ranks that disagree those are wrong that differ from most") {
  const Vote a{0, 11}, b{1, 11}, odd{2, 99};
  Story story;
  story.exited(0, 5, 1).blames(0, Fault::disagreed, {2}, {a, odd});
  CHECK(Story(story).told() == "disagreed 0 2 code=5");
  CHECK(Story(story).blames(1, Fault::disagreed, {2}, {b, odd}).told() == "disagreed 2 code=5");
  // Its own code, where it fails of that itself.
  CHECK(Story(story)
            .exited(1, 6, 2)
            .blames(1, Fault::disagreed, {2}, {b})
            .exited(2, 7, 3)
            .blames(2, Fault::disagreed, {0}, {a, odd})
            .told() == "disagreed 2 code=7");
  // Two ranks: nobody knows who is right.
  CHECK(Story()
            .exited(0, 5, 2)
            .blames(0, Fault::disagreed, {1}, {{0, 11}, {1, 99}})
            .exited(1, 6, 1)
            .blames(1, Fault::disagreed, {0}, {{0, 11}, {1, 99}})
            .told() == "disagreed 0 1 code=5");
  // A message's two ends, which have no number.
  CHECK(Story().exited(3, 5).blames(3, Fault::disagreed, {1}).told() == "disagreed 1 3 code=5");
}

TEST_CASE("ranks that have returned from the call count, too, and each only once") {
  const Vote right{2, 11}, odd{3, 99};
  const auto story = [&](std::vector<Count> counts) {
    Story told;
    told.exited(0, 0).exited(1, 0);
    told.exited(2, 5, 1).blames(2, Fault::disagreed, {3}, {right, odd});
    told.exited(3, 6, 2).blames(3, Fault::disagreed, {2}, {right, odd});
    told.facts.counts = std::move(counts);
    return told.told();
  };
  CHECK(story({}) == "disagreed 2 3 code=5");
  CHECK(story({{{0, 11}, 2, 7, 3}}) == "disagreed 3 code=6");
  CHECK(story({{{0, 11}, 2, 7, 3}, {{2, 11}, 1, 7, 3}, {{3, 99}, 1, 7, 3}}) ==
        "disagreed 3 code=6");
  CHECK(story({{{0, 99}, 2, 7, 3}, {{2, 11}, 1, 7, 3}}) == "disagreed 2 code=5");
  // Other calls are not asked about.
  CHECK(story({{{0, 11}, 2, 7, 4}, {{0, 11}, 2, 8, 3}}) == "disagreed 2 3 code=5");
  // The odd one need not have noticed.
  Story unaware;
  unaware.exited(1, 0).exited(2, 5).blames(2, Fault::disagreed, {0}, {right, {0, 11}});
  unaware.facts.counts = {{{0, 11}, 1, 7, 3}, {{1, 99}, 1, 7, 3}, {{2, 11}, 1, 7, 3}};
  CHECK(unaware.told() == "disagreed 1 code=5");
}

TEST_CASE("wrong arguments are their rank's fault, whether it ends of them or goes on") {
  Story story;
  story.exited(0, 134, 1).blames(0, Fault::arguments, {1});
  CHECK(Story(story).told() == "arguments 1 code=134");
  CHECK(Story(story).exited(1, 4, 9).told() == "failed 1 code=4");
  CHECK(Story(story).exited(1, 0).told() == "arguments 1 code=134");
  // It caught its error, and lost the one that had failed for it.
  CHECK(Story(story).exited(1, 4, 9).blames(1, Fault::lost, {0}).told() == "arguments 1 code=4");
}

TEST_CASE("one that gave up is the cause, and who was told so is not") {
  Story story;
  story.exited(0, 75, 1).blames(0, Fault::gave_up, {2});
  story.exited(1, 75, 2).blames(1, Fault::gave_up, {2});
  CHECK(Story(story).told() == "gave_up 2 code=75");
  CHECK(Story(story).exited(2, 1, 9).blames(2, Fault::own, {}).told() == "failed 2 code=1");
}

TEST_CASE("of ranks that lost each other both are named") {
  CHECK(Story()
            .exited(1, 75, 1)
            .blames(1, Fault::lost, {2})
            .exited(2, 74, 2)
            .blames(2, Fault::lost, {1})
            .told() == "lost 1 2 code=75");
}

TEST_CASE("a verdict names a few ranks of many") {
  Verdict verdict;
  verdict.kind = Kind::disagreed;
  verdict.ranks = {0, 1};
  const auto name = [](int rank) { return "rank " + std::to_string(rank); };
  CHECK(sentence_of(verdict, name) == "rank 0 and rank 1 made calls that do not agree");
  for (int rank = 2; rank < 20; ++rank) verdict.ranks.push_back(rank);
  CHECK(sentence_of(verdict, name) ==
        "rank 0, rank 1, rank 2, rank 3, rank 4, rank 5, rank 6, rank 7 and 12 more made calls "
        "that do not agree");
}

}  // namespace dlaunch
