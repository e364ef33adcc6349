// The operators of a daemon, what a request asks, and the way of it to the serving loop.
#include "rendezvous/control/action_door.hpp"
#include "rendezvous/control/action_pages.hpp"
#include "tests/support/temporary_folder.hpp"

#include <dlaunch/error.hpp>

#include <chrono>
#include <fstream>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <variant>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <doctest/doctest.h>
#include <sys/stat.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;

namespace {

constexpr std::string_view ada = "ada-0123456789abcdef", bob = "bob-0123456789abcdef";

Operators both() {
  return Operators::parse(
      "# those on call\n\n ada " + std::string(ada) + "\r\nbob\t" + std::string(bob) + "\n", "F");
}

std::string complaint_of(std::string_view text) {
  try {
    Operators::parse(text, "F");
  } catch (const Error& error) {
    CHECK(error.errc() == Errc::misuse);
    return error.what();
  }
  return "none";
}

PageRequest request(std::string_view method, std::string_view target,
                    std::string_view authorization = "Bearer ada-0123456789abcdef") {
  PageRequest asked;
  asked.target = target;
  asked.method = method;
  asked.authorization = authorization;
  asked.peer = "127.0.0.1:9";
  return asked;
}

/// "stop job= node= reason= by= from=", or the code and sentence that answer it.
std::string asked(const PageRequest& what) {
  const Operators operators = both();
  const auto read = action_of(what, &operators);
  if (const auto* page = std::get_if<Page>(&read)) {
    return std::to_string(page->code) + " " + page->body;
  }
  const auto& action = std::get<Action>(read);
  return std::string(name_of(action.kind)) + " job=" + action.job + " node=" + action.node +
         (action.backup.empty() ? "" : " backup=" + action.backup) + " reason=" + action.reason +
         " by=" + action.by + " from=" + action.from;
}

struct Loop {
  ~Loop() { work.reset(); }
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  std::jthread thread{[this] { io.run(); }};
};

}  // namespace

TEST_CASE("each operator has a token, and what is wrong in their file is said by line") {
  const Operators operators = both();
  CHECK(operators.name_of(ada) == "ada");
  CHECK(operators.name_of(bob) == "bob");
  CHECK_FALSE(operators.name_of(""));
  CHECK_FALSE(operators.name_of("ada-0123456789abcdeF"));
  CHECK_FALSE(operators.name_of(ada.substr(1)));
  CHECK_FALSE(operators.name_of(std::string(ada) + "x"));
  CHECK_FALSE(operators.name_of(std::string(1000, 'x')));
  CHECK_FALSE(operators.name_of(std::string(ada) + std::string(300, '\0')));
  CHECK(complaint_of("").find("F: no operator is named there") != std::string::npos);
  CHECK(complaint_of("a b").find("F:1: a line is NAME TOKEN") != std::string::npos);
  CHECK(complaint_of("\nada 0123456789abcdef more\n").find("F:2: ") != std::string::npos);
  CHECK(complaint_of("a/b 0123456789abcdef").find("name has at most") != std::string::npos);
  CHECK(complaint_of("a 0123456789abcdef\na 0123456789abcdeg").find("F:2: the operator a is") !=
        std::string::npos);
  CHECK(complaint_of("a 0123456789abcdef\nb 0123456789abcdef").find("has the same token") !=
        std::string::npos);
  std::string many;
  for (int i = 0; i < 65; ++i) {
    many += "a" + std::to_string(i) + " 0123456789abcdef" + std::to_string(i) + "\n";
  }
  CHECK(complaint_of(many).find("F:65: there may be 64 operators") != std::string::npos);
  CHECK(complaint_of("a secret").find("secret") == std::string::npos);
}

TEST_CASE("the file of tokens is for its owner alone") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() / "operators";
  std::ofstream(path) << "ada " << ada << "\n";
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  CHECK(read_operators_file(path).name_of(ada) == "ada");
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  CHECK_THROWS_WITH_AS(read_operators_file(path),
                       doctest::Contains("others than its owner have access to it: chmod 600"),
                       Error);
  CHECK(read_operators_credential(path).name_of(ada) == "ada");
  CHECK_THROWS_WITH_AS(read_operators_file(path + "-none"),
                       doctest::Contains("cannot read the tokens of the operators from"), Error);
  std::ofstream(path) << std::string(70'000, '#');
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(read_operators_file(path), doctest::Contains("longer than 64 KiB"), Error);
}

TEST_CASE("what a request asks") {
  const std::string by = " by=ada from=127.0.0.1:9";
  CHECK(asked(request("POST", "/api/v1/jobs/a%20job/stop?reason=moved%20away")) ==
        "stop job=a job node= reason=moved away" + by);
  CHECK(asked(request("POST", "/api/v1/jobs/a%2Fb/drain")) == "drain job=a/b node= reason=" + by);
  CHECK(asked(request("DELETE", "/api/v1/jobs/j?x=y&reason=old")) ==
        "remove job=j node= reason=old" + by);
  CHECK(asked(request("POST", "/api/v1/jobs/j/nodes/h%3A1/evict")) ==
        "evict job=j node=h:1 reason=" + by);
  CHECK(asked(request("POST", "/api/v1/drain")) == "drain-all job= node= reason=" + by);
  CHECK(asked(request("POST", "/api/v1/backups/2026-11-24_a?reason=x")) ==
        "backup job= node= backup=2026-11-24_a reason=x" + by);
  CHECK(asked(request("DELETE", "/api/v1/drain")) == "resume-all job= node= reason=" + by);
  CHECK(asked(request("POST", "/api/v1/drain", "bearer  bob-0123456789abcdef")).find("by=bob") !=
        std::string::npos);
}

TEST_CASE("a request that may not act is told why, and one that makes no sense, too") {
  const auto starts = [](const PageRequest& what, std::string_view answer) {
    const std::string said = asked(what);
    CHECK_MESSAGE(said.starts_with(answer), what.target << ": " << said);
  };
  starts(request("POST", "/api/v1/drain", ""), "401 an action needs the header");
  starts(request("POST", "/api/v1/drain", "Basic YTpi"), "401 an action needs the header");
  starts(request("POST", "/api/v1/drain", "Bearer"), "401 an action needs the header");
  starts(request("POST", "/api/v1/drain", "Bearer wrong"), "401 this token is no operator's");
  starts(request("POST", "/api/v1/nothing", "Bearer wrong"), "401 ");
  for (const auto* target :
       {"/api/v1/", "/api/v1/jobs", "/api/v1/jobs/", "/api/v1/jobs/j", "/api/v1/jobs//stop",
        "/api/v1/jobs/j/stop/", "/api/v1/jobs/j/end", "/api/v1/jobs/j/nodes/n",
        "/api/v1/jobs/j/nodes//evict", "/api/v1/jobs/%zz/stop", "/api/v1/a/b/c/d/e/f/g"}) {
    starts(request("POST", target), "404 there is no such action; there are POST");
  }
  starts(request("DELETE", "/api/v1/jobs/j/stop"), "404 ");
  starts(request("DELETE", "/api/v1/backups/nightly"), "404 ");
  for (const auto* target : {"/api/v1/backups/..", "/api/v1/backups/a.db", "/api/v1/backups/a%2Fb",
                             "/api/v1/backups/a%00", "/api/v1/backups/%C3%A4"}) {
    starts(request("POST", target), "400 a backup's name has at most 64 letters");
  }
  const std::string longest(255, 'x'), longer(256, 'x');
  for (const auto& target :
       {"/api/v1/jobs/" + longer + "/stop", "/api/v1/jobs/j/nodes/" + longer + "/evict",
        std::string("/api/v1/jobs/a%0ab/drain"), std::string("/api/v1/jobs/j/nodes/%1b/evict")}) {
    starts(request("POST", target), "400 a job's and a node's name has at most 255 bytes");
  }
  starts(request("POST", "/api/v1/jobs/" + longest + "/nodes/" + longest + "/evict"), "evict ");
  starts(request("POST", "/healthz", ""), "405 this page is read by GET and HEAD");
  starts(request("POST", "/api/v1/drain?reason=%0a"), "400 a reason has at most 256 bytes");
  starts(request("POST", "/api/v1/drain?reason=%"), "400 ");
  const std::string verbose = "/api/v1/drain?reason=" + std::string(257, 'x');
  starts(request("POST", verbose), "400 ");
  const auto nobody = action_of(request("POST", "/api/v1/drain"), nullptr);
  CHECK(std::get<Page>(nobody).code == 403);
  CHECK(std::get<Page>(nobody).body.find("set http-token-file") != std::string::npos);
  CHECK_FALSE(is_action(PageRequest{}));
}

TEST_CASE("an outcome has a code and its sentence") {
  using Result = ActionOutcome::Result;
  CHECK(outcome_page(ActionOutcome{Result::done, "it ends"}).code == 200);
  CHECK(outcome_page(ActionOutcome{Result::done, "it ends"}).body == "it ends\n");
  CHECK(outcome_page(ActionOutcome{Result::no_job, "none"}).code == 404);
  CHECK(outcome_page(ActionOutcome{Result::no_node, "none"}).code == 404);
  CHECK(outcome_page(ActionOutcome{Result::not_now, "no"}).code == 409);
  CHECK(outcome_page(std::nullopt).code == 503);
}

TEST_CASE("an action is carried out on the loop, once") {
  Loop loop;
  std::thread::id acted_on;
  ActionDoor door(loop.io, [&](const Action& action) {
    acted_on = std::this_thread::get_id();
    return ActionOutcome{ActionOutcome::Result::done, "did " + action.job};
  });
  for (const auto* job : {"a", "b"}) {
    Action action;
    action.job = job;
    const auto outcome = door.act(action);
    REQUIRE(outcome);
    CHECK(outcome->sentence == std::string("did ") + job);
  }
  CHECK(acted_on == loop.thread.get_id());
  door.stop();
  CHECK_FALSE(door.act({}));
}

TEST_CASE("an action that fails is told to the one who asked, and ends nothing else") {
  Loop loop;
  ActionDoor door(loop.io, [&](const Action& action) {
    if (action.job == "a") throw std::bad_alloc();
    return ActionOutcome{};
  });
  Action action;
  action.job = "a";
  CHECK_THROWS_AS(door.act(action), std::bad_alloc);
  CHECK(door.act({}));
}

TEST_CASE("what a loop that stands still was asked is not carried out later") {
  boost::asio::io_context still;
  int acts = 0;
  ActionDoor door(still, [&](const Action&) {
    ++acts;
    return ActionOutcome{};
  });
  CHECK_FALSE(door.act({}));
  CHECK_FALSE(door.act({}));  // At once: the loop still owes an answer.
  still.run();
  CHECK(acts == 0);
}
