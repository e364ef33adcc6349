// What the rendezvous remembers of the questions that nodes ask each other.
#include "rendezvous/service/questions.hpp"

#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace std::chrono_literals;

namespace {

constexpr Clock::time_point start(1h);
const Questions::Nodes nodes{{10, 0}, {11, 1}, {12, 2}};

Bytes bytes(std::string_view text) {
  const auto view = as_bytes(text);
  return {view.begin(), view.end()};
}

message::Ask question(std::uint64_t number, std::int32_t node = message::Ask::all_nodes) {
  return {7, number, node, 2s, bytes("what")};
}

/// "11<-asked 1 what", "10<-answer 5 of 1: x", "10<-no more 5".
std::string text(const Questions::Sends& sends) {
  std::string all;
  for (const auto& [to, what] : sends) {
    all += (all.empty() ? "" : ", ") + std::to_string(to) + "<-";
    if (const auto* asked = std::get_if<message::Asked>(&what)) {
      all += "asked " + std::to_string(asked->number) + " ";
      all.append(as_text(asked->question));
    } else {
      const auto& answered = std::get<message::Answered>(what);
      const bool no_more = answered.node == message::Answered::no_more;
      all += (no_more ? "no more " : "answer ") + std::to_string(answered.number);
      if (!no_more) all += " of " + std::to_string(answered.node) + ": ";
      all.append(as_text(answered.answer));
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a question goes to the other nodes, and their answers to the asker") {
  Questions questions;
  CHECK(text(questions.ask(10, question(5), nodes, start)) == "11<-asked 1 what, 12<-asked 1 what");
  CHECK(text(questions.answer(12, {7, 1, bytes("y")})) == "10<-answer 5 of 2: y");
  // Twice, of a stranger, to another question.
  CHECK(text(questions.answer(12, {7, 1, bytes("z")})).empty());
  CHECK(text(questions.answer(99, {7, 1, bytes("z")})).empty());
  CHECK(text(questions.answer(11, {7, 2, bytes("z")})).empty());
  CHECK(text(questions.answer(11, {7, 1, bytes("x")})) == "10<-answer 5 of 1: x, 10<-no more 5");
  CHECK_FALSE(questions.next_deadline());
}

TEST_CASE("one node is asked, or none that is there") {
  Questions questions;
  CHECK(text(questions.ask(11, question(1, 0), nodes, start)) == "10<-asked 1 what");
  CHECK(text(questions.ask(11, question(2, 8), nodes, start)) == "11<-no more 2");
}

TEST_CASE("nodes that leave, come back, or say nothing") {
  Questions questions;
  questions.ask(10, question(5), nodes, start);
  CHECK(text(questions.back(11)) == "11<-asked 1 what");
  CHECK(text(questions.keep([](Session node) { return node != 11; })).empty());
  CHECK(text(questions.back(11)).empty());
  CHECK(questions.next_deadline() == start + 2s);
  CHECK(text(questions.tick(start + 1999ms)).empty());
  CHECK(text(questions.tick(start + 2s)) == "10<-no more 5");
  CHECK(text(questions.answer(12, {7, 1, bytes("late")})).empty());
  // The last one that was waited for; the asker itself.
  questions.ask(10, question(6, 1), nodes, start);
  CHECK(text(questions.keep([](Session node) { return node != 11; })) == "10<-no more 6");
  questions.ask(10, question(7), nodes, start);
  questions.keep([](Session node) { return node != 10; });
  CHECK_FALSE(questions.next_deadline());
}

TEST_CASE("asked again after a reconnect, it is a new question") {
  Questions questions;
  questions.ask(10, question(5), nodes, start);
  CHECK(text(questions.ask(10, question(5), nodes, start)) == "11<-asked 2 what, 12<-asked 2 what");
  CHECK(text(questions.answer(11, {7, 1, bytes("x")})).empty());
  CHECK(text(questions.answer(11, {7, 2, bytes("x")})) == "10<-answer 5 of 1: x");
}

TEST_CASE("questions and answers have limits") {
  Questions questions;
  for (std::uint64_t number = 1; number <= message::questions_max; ++number) {
    CHECK(text(questions.ask(10, question(number), nodes, start)).starts_with("11<-asked"));
  }
  CHECK(text(questions.ask(10, question(99), nodes, start)) == "10<-no more 99");
  auto long_one = question(1);
  long_one.question.resize(message::question_bytes_max + 1);
  CHECK(text(questions.ask(11, long_one, nodes, start)) == "11<-no more 1");
  auto patient = question(2);
  patient.patience = 1h;
  questions = {};
  questions.ask(10, patient, nodes, start);
  CHECK(questions.next_deadline() == start + Questions::patience_max);
}

TEST_CASE("an asker that does not read gets no more than it has room for") {
  Questions questions;
  questions.ask(10, question(5), nodes, start);
  const Bytes large(Questions::unread_bytes_max);
  const auto sizes = [](const Questions::Sends& sends) {
    std::string all;
    for (const auto& [to, what] : sends) {
      all += std::to_string(std::get<message::Answered>(what).node) + " ";
    }
    return all;
  };
  CHECK(sizes(questions.answer(11, {7, 1, large})) == "1 ");
  CHECK(sizes(questions.answer(12, {7, 1, large})).empty());
  CHECK(sizes(questions.taken(11, {5})).empty());
  CHECK(sizes(questions.taken(10, {5})) == "2 -1 ");
  CHECK_FALSE(questions.next_deadline());
}
