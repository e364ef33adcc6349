// What ranks tell each other beside data: no socket, no clock.
#include "collectives/transport/control_inbox.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::transport;

namespace {

FailureNotice failure_in(std::uint64_t sequence, const std::string& sentence) {
  return {Errc::internal, Scope::from_here_on, 7, sequence, sentence};
}

}  // namespace

TEST_CASE("of failures that are told the one that concerns most calls counts") {
  ControlInbox news;
  CHECK_FALSE(news.has_failures());
  // Passed on by a rank that was in the next call already, it is here before the first word of it.
  news.take_failure(failure_in(4, "passed on"));
  news.take_failure(failure_in(3, "first word"));
  news.take_failure(failure_in(3, "another"));
  news.take_failure(failure_in(5, "a later one"));
  CHECK(news.has_failures());
  REQUIRE(news.failure_of(7) != nullptr);
  CHECK(news.failure_of(7)->sequence == 3);
  CHECK(news.failure_of(7)->sentence == "first word");
  CHECK(news.failure_of(8) == nullptr);
}

TEST_CASE("a call that is told is due when this rank has come that far, whoever is ahead") {
  ControlInbox news;
  const auto told = [&](int from, std::uint64_t sequence) {
    Fingerprint call;
    call.op = Op::barrier;
    call.sequence = sequence;
    news.take_call(7, {from, call});
  };
  told(1, 3);
  told(2, 2);
  CHECK(news.has_calls());
  REQUIRE(news.next_call(7, 2));
  CHECK_FALSE(news.next_call(7, 2));
  CHECK_FALSE(news.next_call(8, 9));
  const auto last = news.next_call(7, 3);
  REQUIRE(last);
  CHECK(last->from == 1);
  CHECK_FALSE(news.has_calls());
}

TEST_CASE("wrong arguments concern their call alone, and the last ones are remembered") {
  ControlInbox news;
  news.take_failure({Errc::misuse, Scope::this_call, 7, 2, "no rank 9"});
  news.take_failure({Errc::misuse, Scope::this_call, 7, 4, "no rank 8"});
  CHECK(news.failure_of(7) == nullptr);
  CHECK(news.failure_of(7, 3) == nullptr);
  REQUIRE(news.failure_of(7, 2) != nullptr);
  CHECK(news.failure_of(7, 2)->sentence == "no rank 9");
  REQUIRE(news.wrong_arguments(7) != nullptr);
  CHECK(news.wrong_arguments(7)->sentence == "no rank 8");
  CHECK(news.wrong_arguments(6) == nullptr);
}

TEST_CASE("however many failures were told before, the next one is heard") {
  ControlInbox news;
  constexpr std::uint64_t many = 3000;
  for (std::uint64_t communicator = 1; communicator <= many; ++communicator) {
    news.take_failure({Errc::internal, Scope::from_here_on, communicator, 1, "failed"});
    news.take_failure({Errc::misuse, Scope::this_call, communicator, 2, "wrong"});
    REQUIRE(news.failure_of(communicator) != nullptr);
    REQUIRE(news.failure_of(communicator, 2) != nullptr);
  }
  CHECK(news.failure_of(1) == nullptr);  // It made room.
}

TEST_CASE("a communicator that has ended is forgotten") {
  ControlInbox news;
  news.take_failure(failure_in(3, "of 7"));
  news.take_failure({Errc::misuse, Scope::this_call, 7, 2, "no rank 9"});
  Fingerprint call;
  call.op = Op::barrier;
  news.take_call(7, {1, call});
  news.forget(8);
  CHECK(news.has_failures());
  CHECK(news.has_calls());
  news.forget(7);
  CHECK(news.failure_of(7) == nullptr);
  CHECK(news.wrong_arguments(7) == nullptr);
  CHECK_FALSE(news.has_failures());
  CHECK_FALSE(news.has_calls());
}
