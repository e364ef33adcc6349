// What of refused strangers is told: a line of each kind, and then counts.
#include "rendezvous/service/refusal_log.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using rendezvous::RefusalLog;
using store::RefusalKind;
using namespace std::chrono_literals;
using Lines = std::vector<std::string>;

namespace {

const Clock::time_point start = Clock::time_point() + 1h;

struct Story {
  RefusalLog log;
  Lines lines;
  RefusalLog::Tell tell = [this](std::string line) { lines.push_back(std::move(line)); };

  void add(RefusalKind kind, std::string sentence, Clock::duration at) {
    log.add(kind, std::move(sentence), start + at, tell);
  }
  Lines tick(Clock::duration at) {
    lines.clear();
    log.tick(start + at, tell);
    return lines;
  }
  std::uint64_t count(RefusalKind kind) const {
    return log.counts().at(static_cast<std::size_t>(kind));
  }
};

}  // namespace

TEST_CASE("the first of each kind is told at once, the others in a line a minute") {
  Story story;
  CHECK(!story.log.next_deadline());
  for (int i = 1; i <= 1000; ++i) story.add(RefusalKind::wrong_secret, "w" + std::to_string(i), 1s);
  story.add(RefusalKind::no_secret, "n1", 2s);
  CHECK(story.lines == Lines{"w1", "n1"});
  CHECK(story.log.next_deadline() == start + 61s);
  CHECK(story.tick(60s).empty());
  CHECK(story.tick(61s) == Lines{"w1000 (and 998 more in 60 s)"});
  CHECK(story.count(RefusalKind::wrong_secret) == 1000);
  CHECK(story.count(RefusalKind::no_secret) == 1);
  CHECK(story.count(RefusalKind::other_job) == 0);
}

TEST_CASE("a second one alone waits for the minute's end, and then stands for itself") {
  Story story;
  story.add(RefusalKind::bad_hello, "one", 0s);
  story.add(RefusalKind::bad_hello, "two", 59s);
  CHECK(story.tick(60s) == Lines{"two"});
  // That was a line, too: the next minute begins with it.
  story.add(RefusalKind::bad_hello, "three", 61s);
  CHECK(story.lines == Lines{"two"});
  CHECK(story.tick(120s) == Lines{"three"});
}

TEST_CASE("a kind that has been quiet for a minute is told at once again") {
  Story story;
  story.add(RefusalKind::other_version, "one", 0s);
  CHECK(story.tick(60s).empty());
  CHECK(!story.log.next_deadline());
  story.add(RefusalKind::other_version, "two", 70s);
  CHECK(story.lines == Lines{"two"});
}
