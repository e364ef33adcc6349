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
  RefusalLog::Tell tell = [this](const std::string& job, std::string line) {
    lines.push_back(job.empty() ? std::move(line) : job + ": " + line);
  };

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

TEST_CASE("the first ten nodes that a job refuses are told, the others in a line a minute") {
  Story story;
  for (int i = 1; i <= 1000; ++i) {
    story.log.add_node("a", true, "n" + std::to_string(i), start + 1s, story.tell);
  }
  CHECK(story.lines.size() == RefusalLog::nodes_told_max);
  CHECK(story.lines.back() == "a: n10");
  story.log.add_node("b", true, "n1", start + 2s, story.tell);
  CHECK(story.lines.back() == "b: n1");
  CHECK(story.log.next_deadline() == start + 61s);
  CHECK(story.tick(61s) == Lines{"a: n1000 (and 989 more in 60 s)"});
  CHECK(story.tick(121s).empty());
  CHECK(!story.log.next_deadline());
}

TEST_CASE("names of jobs that are not here fill no log, and hide no job that is") {
  Story story;
  for (int i = 1; i <= 1000; ++i) {
    const std::string of = std::to_string(i);
    story.log.add_node("made up " + of, false, "n" + of, start, story.tell);
  }
  CHECK(story.lines.size() == RefusalLog::nodes_told_max);
  story.log.add_node("a", true, "n", start, story.tell);
  CHECK(story.lines.back() == "a: n");
  CHECK(story.tick(60s) == Lines{"made up 1000: n1000 (and 989 more nodes of any job in 60 s)"});
  // Jobs that are here do not fill it either, however many they are.
  story.lines.clear();
  for (int i = 1; i <= 1000; ++i) {
    for (int node = 0; node < 100; ++node) {
      story.log.add_node("job " + std::to_string(i), true, "n", start + 61s, story.tell);
    }
  }
  CHECK(story.lines.size() <= RefusalLog::nodes_told_max * (RefusalLog::jobs_max + 1));
}
