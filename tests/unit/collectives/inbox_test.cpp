// The inbox alone: no socket, no clock.
#include "tests/unit/collectives/inbox_slot.hpp"

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::transport;

TEST_CASE("a posted receive is filled in place, a parked message when it is posted") {
  Inbox inbox;
  Slot posted(4, 1), late(4, 1, 9);
  inbox.post(posted.receive);
  inbox.begin(1, data_header(4));
  CHECK(inbox.room(1).data() == posted.memory.data());
  CHECK(feed(inbox, 1, 4, 7) == 4);
  CHECK(posted.done());
  inbox.begin(1, data_header(4, 9));
  feed(inbox, 1, 4, 8);
  inbox.post(late.receive);
  CHECK(late.done());
  CHECK(late.memory[3] == std::byte{8});
}

TEST_CASE("a message that is being parked goes on where its receive wants it") {
  Inbox inbox;
  inbox.begin(1, data_header(8));
  feed(inbox, 1, 3, 1);
  Slot slot(8, 1);
  inbox.post(slot.receive);
  CHECK(slot.receive.state == Receive::State::filling);
  feed(inbox, 1, 5, 2);
  CHECK(slot.done());
  CHECK(slot.memory[2] == std::byte{1});
  CHECK(slot.memory[3] == std::byte{2});
}

TEST_CASE("a parked message is taken at once if it is whole and the receive agrees with it") {
  Inbox inbox;
  Slot empty(4, 1);
  CHECK_FALSE(inbox.take_parked(empty.receive));
  CHECK_FALSE(inbox.is_awaited());

  inbox.begin(1, data_header(4));
  feed(inbox, 1, 3, 7);
  CHECK_FALSE(inbox.take_parked(empty.receive));  // Its last byte is still to come.
  feed(inbox, 1, 1, 7);
  Slot other(4, 1, 9), from_another(4, 2), too_short(3, 1);
  CHECK_FALSE(inbox.take_parked(other.receive));
  CHECK_FALSE(inbox.take_parked(from_another.receive));
  CHECK_FALSE(inbox.take_parked(too_short.receive));
  CHECK_FALSE(inbox.is_awaited());

  const std::vector<int> all{0, 1, 2};
  Slot any(4, any_source);
  any.receive.sources = all;
  CHECK(inbox.take_parked(any.receive));
  CHECK(any.done());
  CHECK(any.receive.source == 1);
  CHECK(any.memory[3] == std::byte{7});
  CHECK_FALSE(inbox.take_parked(empty.receive));
  CHECK(inbox.is_clear());

  // One whose sender waits for the receiver is not: that has to be told first.
  Header synchronous = data_header(4);
  synchronous.sequence = 1;
  inbox.begin(1, synchronous);
  feed(inbox, 1, 4, 8);
  CHECK_FALSE(inbox.take_parked(empty.receive));
  // Nor one behind it.
  inbox.begin(1, data_header(4));
  feed(inbox, 1, 4, 9);
  CHECK_FALSE(inbox.take_parked(empty.receive));
}

TEST_CASE("beyond its limit a source is held until there is room, or a receive") {
  Inbox inbox(1000);
  inbox.begin(1, data_header(700));
  CHECK(feed(inbox, 1, 700, 1) == 700);
  inbox.begin(1, data_header(600));
  CHECK(inbox.is_held(1));
  CHECK(feed(inbox, 1, 600, 2) == 0);
  Slot first(700, 1), second(600, 1);
  inbox.post(first.receive);
  CHECK(first.done());
  CHECK(!inbox.is_held(1));
  CHECK(feed(inbox, 1, 600, 2) == 600);
  inbox.post(second.receive);
  CHECK(second.done());

  // Larger than the limit: never parked, but received all the same.
  inbox.begin(1, data_header(5000));
  CHECK(inbox.is_held(1));
  Slot large(5000, 1);
  inbox.post(large.receive);
  CHECK(feed(inbox, 1, 5000, 3) == 5000);
  CHECK(large.done());
}

TEST_CASE("who waits for what lies behind a held message looks past it, and past no other") {
  Inbox inbox(1000);
  const std::vector<int> all{0, 1, 2};
  for (const int from : {1, 2}) {
    inbox.begin(from, data_header(5000, 1));
    CHECK(inbox.is_held(from));
  }
  inbox.look_past(std::span(all).subspan(1, 1));
  CHECK(feed(inbox, 1, 5000, 3) == 5000);
  CHECK(!inbox.is_receiving(1));
  CHECK(inbox.is_held(2));
  // What comes next is held again, until somebody waits for what is behind it, too.
  inbox.begin(1, data_header(0, 1));
  CHECK(inbox.is_held(1));
  Slot wanted(8, any_source, 2);
  wanted.receive.sources = all;
  inbox.post(wanted.receive);
  CHECK(inbox.is_held(1));
  inbox.look_past(wanted.receive.awaited());
  CHECK(!inbox.is_held(1));
  inbox.begin(1, data_header(8, 2));
  CHECK(feed(inbox, 1, 8, 4) == 8);
  CHECK(wanted.done());
  Slot large(5000, 1, 1), empty(0, 1, 1), other(5000, 2, 1);
  for (Slot* slot : {&large, &empty, &other}) inbox.post(slot->receive);
  CHECK(large.done());
  CHECK(large.memory.back() == std::byte{3});
  CHECK(empty.done());
  CHECK(feed(inbox, 2, 5000, 5) == 5000);
  CHECK(other.done());
}

TEST_CASE("what comes for a communicator that has ended takes no room") {
  const auto of = [](std::uint64_t communicator, std::size_t bytes) {
    Header header = data_header(bytes);
    header.communicator = communicator;
    return header;
  };
  Inbox inbox(1200);
  inbox.begin(1, of(7, 400));
  CHECK(feed(inbox, 1, 400, 1) == 400);
  inbox.begin(1, of(1, 100));
  CHECK(feed(inbox, 1, 100, 2) == 100);
  inbox.begin(1, of(7, 300));  // It is being parked,
  CHECK(feed(inbox, 1, 200, 3) == 200);
  inbox.begin(2, of(7, 2000));  // and this one is held.
  CHECK(inbox.is_held(2));
  inbox.forget(7);
  CHECK(feed(inbox, 1, 100, 3) == 100);
  CHECK(feed(inbox, 2, 2000, 4) == 2000);
  inbox.begin(1, of(7, 5000));
  CHECK(feed(inbox, 1, 5000, 5) == 5000);
  inbox.begin(1, of(7, 0));
  CHECK(!inbox.is_receiving(1));
  inbox.begin(1, of(1, 700));  // There is room for it.
  CHECK(feed(inbox, 1, 700, 6) == 700);
  Slot first(100, 1), second(700, 1);
  inbox.post(first.receive);
  inbox.post(second.receive);
  CHECK(first.memory.front() == std::byte{2});
  CHECK(second.memory.front() == std::byte{6});
  // A message that is set apart stays its owner's.
  inbox.begin(1, of(8, 8));
  CHECK(feed(inbox, 1, 8, 7) == 8);
  const auto apart = inbox.set_apart(8, 1, 0, {});
  REQUIRE(apart);
  inbox.forget(8);
  Slot third(8, 1);
  third.receive.communicator = 8;
  inbox.take_apart(third.receive, *apart);
  CHECK(third.done());
  // The ends of very many are remembered for a while.
  for (std::uint64_t i = 100; i < 5000; ++i) inbox.forget(i);
  inbox.begin(1, of(4999, 8));
  CHECK(feed(inbox, 1, 8, 8) == 8);
  CHECK(!inbox.peek(4999, 1, any_tag, {}));
}

TEST_CASE("empty messages are limited too, and taken") {
  Inbox inbox(1000);
  int begun = 0;
  while (!inbox.is_receiving(1)) {
    inbox.begin(1, data_header(0));
    ++begun;
  }
  CHECK(begun < 10);
  for (int i = 0; i < begun; ++i) {
    Slot slot(0, 1);
    inbox.post(slot.receive);
    CHECK(slot.done());
  }
  CHECK(!inbox.is_receiving(1));
}

TEST_CASE("a withdrawn receive is not touched; the rest of its message is dropped") {
  Inbox inbox;
  Slot given_up(8, 1), next(2, 1);
  inbox.post(given_up.receive);
  inbox.begin(1, data_header(8));
  feed(inbox, 1, 3, 1);
  inbox.withdraw(given_up.receive);
  feed(inbox, 1, 5, 2);
  CHECK(given_up.memory[3] == std::byte{0});
  CHECK(!inbox.is_receiving(1));
  inbox.post(next.receive);
  inbox.begin(1, data_header(2));
  feed(inbox, 1, 2, 3);
  CHECK(next.done());
}

TEST_CASE("from anybody comes what came first") {
  Inbox inbox;
  for (const int from : {3, 1, 2}) {
    inbox.begin(from, data_header(1, from));
    feed(inbox, from, 1, from);
  }
  const std::vector<int> all{0, 1, 2, 3};
  for (const int wanted : {3, 1, 2}) {
    Slot slot(1, any_source, any_tag);
    slot.receive.sources = all;
    CHECK(inbox.peek(1, any_source, any_tag, all)->first == wanted);
    inbox.post(slot.receive);
    CHECK(slot.receive.source == wanted);
  }
  CHECK(!inbox.peek(1, any_source, any_tag, all));
}

TEST_CASE("a message goes to the receive that was posted first, whether that says any or not") {
  const std::vector<int> all{0, 1, 2};
  // Exact ones (false) and those that say any, in every order of four.
  for (unsigned order = 0; order < 16; ++order) {
    Inbox inbox;
    std::vector<std::unique_ptr<Slot>> slots;
    for (unsigned i = 0; i < 4; ++i) {
      const bool any_rank = (order >> i & 1) != 0 && i % 2 == 0;
      const bool any = (order >> i & 1) != 0;
      slots.push_back(std::make_unique<Slot>(1, any_rank ? any_source : 1, any ? any_tag : 5));
      slots.back()->receive.sources = all;
      inbox.post(slots.back()->receive);
    }
    for (int i = 0; i < 4; ++i) {
      CHECK(inbox.is_awaited());
      inbox.begin(1, data_header(1, 5));
      feed(inbox, 1, 1, i + 1);
      CHECK(slots[static_cast<std::size_t>(i)]->done());
      CHECK(slots[static_cast<std::size_t>(i)]->memory[0] == static_cast<std::byte>(i + 1));
    }
    CHECK(!inbox.is_awaited());
  }
}

TEST_CASE("an exact receive is not given what another source, tag or communicator has sent") {
  Inbox inbox;
  Slot slot(1, 1, 5);
  inbox.post(slot.receive);
  Header elsewhere = data_header(1, 5);
  elsewhere.communicator = 2;
  Header collective = data_header(1, 5);
  collective.kind = Kind::collective;
  for (const auto& [from, header] :
       {std::pair{2, data_header(1, 5)}, {1, data_header(1, 6)}, {1, elsewhere}, {1, collective}}) {
    inbox.begin(from, header);
    feed(inbox, from, 1, 9);
    CHECK(!slot.done());
  }
  inbox.begin(1, data_header(1, 5));
  feed(inbox, 1, 1, 7);
  CHECK(slot.done());
  CHECK(slot.memory[0] == std::byte{7});
  CHECK(inbox.peek(1, 1, any_tag, {})->second.tag == 6);
}

TEST_CASE("thousands of receives, and of messages that wait, find each other in any order") {
  constexpr int count = 3000;
  Inbox inbox;
  std::vector<std::unique_ptr<Slot>> slots;
  for (int tag = 0; tag < count; ++tag) {
    slots.push_back(std::make_unique<Slot>(4, 1 + tag % 3, tag));
    inbox.post(slots.back()->receive);
  }
  // Every seventh is given up; the others' messages come in an order of their own.
  for (int tag = 0; tag < count; tag += 7) {
    inbox.withdraw(slots[static_cast<std::size_t>(tag)]->receive);
  }
  const auto mixed = [](int i) { return static_cast<int>(i * 1009L % count); };
  for (int i = 0; i < count; ++i) {
    const int tag = mixed(i), from = 1 + tag % 3;
    inbox.begin(from, data_header(4, tag));
    CHECK(feed(inbox, from, 4, tag % 250) == 4);
  }
  for (int tag = 0; tag < count; ++tag) {
    const Slot& slot = *slots[static_cast<std::size_t>(tag)];
    const bool given_up = tag % 7 == 0;
    CHECK(slot.done() == !given_up);
    CHECK(slot.memory[3] == static_cast<std::byte>(given_up ? 0 : tag % 250));
  }
  // Those of the given up ones wait: first the exact ones of every other, then what is left, in
  // the order in which it came.
  for (int tag = count / 14 * 14; tag >= 0; tag -= 14) {
    Slot slot(4, 1 + tag % 3, tag);
    inbox.post(slot.receive);
    CHECK(slot.done());
    CHECK(slot.memory[0] == static_cast<std::byte>(tag % 250));
  }
  const std::vector<int> all{0, 1, 2, 3};
  for (int i = 0; i < count; ++i) {
    const int tag = mixed(i);
    if (tag % 7 != 0 || tag % 14 == 0) continue;
    Slot slot(4, any_source, any_tag);
    slot.receive.sources = all;
    inbox.post(slot.receive);
    CHECK(slot.done());
    CHECK(slot.receive.header.tag == tag);
  }
  CHECK(!inbox.peek(1, any_source, any_tag, all));
}

TEST_CASE("what does not agree is a mismatch, found before data is used") {
  Inbox inbox;
  Slot slot(4, 1);
  inbox.post(slot.receive);
  inbox.begin(1, data_header(5));
  CHECK(slot.receive.state == Receive::State::mismatched);
  CHECK(slot.receive.header.count == 5);
}

TEST_CASE("headers from outside") {
  Header header = data_header(1);
  CHECK(is_plausible(header));
  header.magic = 0;
  CHECK(!is_plausible(header));
  header = data_header(1);
  header.kind = static_cast<Kind>(99);
  CHECK(!is_plausible(header));
  header.kind = Kind::failure;
  header.bytes = control_bytes_max + 1;
  CHECK(!is_plausible(header));

  const FailureNotice notice{Errc::timeout, Scope::from_here_on, 5, 6, "a sentence"};
  header = make_header(Kind::failure, 5, {}, 0);
  header.sequence = 6;
  const Bytes bytes = encode(notice);
  const auto decoded = decode_failure(header, bytes);
  REQUIRE(decoded);
  CHECK(decoded->code == Errc::timeout);
  CHECK(decoded->sentence == "a sentence");
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    CHECK(!decode_failure(header, BytesView(bytes).first(n)));
  }
  // Its code, then its scope, as a rank might send them that is newer, or not one of ours.
  const auto with = [&](std::size_t place, std::uint8_t number) {
    Bytes other = bytes;
    other[place] = std::byte{number};
    return decode_failure(header, other);
  };
  CHECK(!with(0, 0));
  REQUIRE(with(0, 250));
  CHECK(with(0, 250)->code == Errc::internal);
  CHECK(!with(2, 0));
  CHECK(!with(2, 3));
}

TEST_CASE("answers are read as they were written, and nothing else is") {
  Fingerprint call;
  call.op = Op::all_reduce;
  call.dtype = DType::f32;
  call.reduce = ReduceOp::sum;
  call.sequence = 3;
  call.count = 8;
  call.argument = 5;
  call.traffic = 1;
  const std::vector<Answer> answers = {NothingKnown{},
                                       Doing{.communicator = 7,
                                             .group = "pair",
                                             .call = call,
                                             .peer = 1,
                                             .tag = 2,
                                             .waits_for = 0,
                                             .waits_for_world = 4,
                                             .on_stream = true},
                                       MadeCall{call, "train.cpp:42"}, ArgumentWords{"counts 1, 2"},
                                       SentFrom{{"train.cpp:42", "train.cpp:47"}}};
  for (const Answer& answer : answers) {
    const Bytes whole = encode(answer);
    CHECK(decode_answer(whole) == answer);
    for (std::size_t n = 0; n < whole.size(); ++n) {
      CHECK(!decode_answer(BytesView(whole).first(n)));
    }
    Bytes longer = whole;
    longer.push_back(std::byte{0});
    CHECK(!decode_answer(longer));
  }
  CHECK(!decode_answer(Bytes(1, std::byte{5})));
  // However long its words are, an answer is a control message.
  const std::string words(2 * control_bytes_max, 'x');
  const std::vector<Answer> long_ones = {Doing{.group = words}, MadeCall{call, words},
                                         ArgumentWords{words},
                                         SentFrom{{SentFrom::places_max, words}}};
  for (const Answer& answer : long_ones) {
    const Bytes bytes = encode(answer);
    CHECK(bytes.size() <= control_bytes_max);
    CHECK(decode_answer(bytes));
  }
}
