// Whose turn it is: jobs, and the connections of each.
#include "runtime/store/server/turns.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

using Job = std::shared_ptr<store::Turns::Job>;

bool no_work(const Job&) { return true; }

}  // namespace

TEST_CASE("jobs take turns, and within a job its connections do") {
  store::Turns turns;
  const auto a = turns.job("a"), b = turns.job("b");
  CHECK(turns.job("a") == a);
  for (const store::ConnectionId id : {1U, 2U, 3U}) turns.add(a, id);
  turns.add(b, 4);
  std::string served;
  // A turn is over after so many; connection 2 is not done after its first.
  const auto turn = [&](int connections, store::ConnectionId unfinished = 0) {
    turns.serve_job(no_work, [&](store::ConnectionId id) {
      served += std::to_string(id);
      if (id == unfinished) turns.add(a, id);
      return --connections > 0;
    });
    served += " ";
  };
  turn(2, 2);
  turn(2);
  turn(2);
  turns.add(b, 5);
  turn(2);
  CHECK(served == "12 32 4 5 ");
  CHECK(turns.empty());
}

TEST_CASE("a job that says little waits for one turn of those that are never done, not for all") {
  store::Turns turns;
  std::deque<std::shared_ptr<store::Turns::Job>> busy;
  for (store::ConnectionId id = 1; id <= 100; ++id) {
    turns.add(busy.emplace_back(turns.job(std::to_string(id))), id);
  }
  const auto quiet = turns.job("quiet"), other = turns.job("other");
  std::vector<store::ConnectionId> served;
  const auto turn = [&] {
    turns.serve_job(no_work, [&](store::ConnectionId id) {
      served.push_back(id);
      if (id <= 100) turns.add(busy.at(id - 1), id);
      return false;
    });
  };
  for (int i = 0; i < 300; ++i) turn();
  CHECK(turns.jobs_due() == 100);
  for (int i = 0; i < 50; ++i) {
    served.clear();
    turns.add(quiet, 101);
    turns.add(other, 102);
    while (std::ranges::count(served, store::ConnectionId{102}) == 0) turn();
    CHECK(served.size() <= 4);
  }
  // Nor do many that say little keep one that is never done from its turn.
  served.clear();
  for (int i = 0; i < 100; ++i) {
    if (served.empty() || served.back() == 101) turns.add(quiet, 101);
    turn();
  }
  CHECK(std::ranges::count(served, store::ConnectionId{101}) <= 50);
}

TEST_CASE(
    "a job's own work is done before its connections are served, in as many turns as it takes") {
  store::Turns turns;
  const auto a = turns.job("a"), b = turns.job("b");
  int work_of_a = 3;
  std::string served;
  const auto turn = [&] {
    turns.serve_job(
        [&](const Job& job) {
          served += job->name();
          return --work_of_a == 0;
        },
        [&](store::ConnectionId id) {
          served += std::to_string(id);
          if (id == 1) turns.add_work(a);  // Connection 2 waits for it.
          return true;
        });
    served += " ";
  };
  turns.add(a, 1);
  turns.add(a, 2);
  for (const store::ConnectionId id : {3U, 4U}) turns.add(b, id);
  for (int i = 0; i < 3; ++i) turn();
  CHECK(served == "1 a 34 ");
  turns.add(b, 5);
  for (int i = 0; i < 3; ++i) turn();
  CHECK(served == "1 a 34 a 5 a2 ");
  CHECK(turns.empty());
  // Work of a job that says nothing.
  work_of_a = 1;
  turns.add_work(a);
  CHECK(turns.jobs_due() == 1);
  turn();
  CHECK(served == "1 a 34 a 5 a2 a ");
  CHECK(turns.empty());
}

TEST_CASE("a job whose connections have gone is forgotten, one that has some is not") {
  store::Turns turns;
  const auto stays = turns.job("stays");
  std::weak_ptr<store::Turns::Job> gone = turns.job("gone");
  for (int i = 0; i < 1000; ++i) turns.job("job " + std::to_string(i));
  CHECK(gone.expired());
  CHECK(turns.job("stays") == stays);
  CHECK(turns.known_jobs() < 500);
}

TEST_CASE("a turn is the shorter the more jobs there are, and never nothing") {
  using namespace std::chrono_literals;
  CHECK(store::turn_time(0) == 500us);
  CHECK(store::turn_time(10) == 500us);
  CHECK(store::turn_time(100) == 50us);
  CHECK(store::turn_time(1'000'000) == 20us);
}
