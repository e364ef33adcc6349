// The inbox alone: shorter messages, those that are set apart, and those of which the sender is
// told.
#include "tests/unit/collectives/inbox_slot.hpp"

#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::transport;

TEST_CASE(
    "a receive of up to so much takes what is shorter, byte for byte, and nothing behind it") {
  for (const bool is_first : {true, false}) {
    Inbox inbox;
    Slot slot(8, 1), next(2, 1);
    slot.receive.up_to = true;
    if (is_first) inbox.post(slot.receive);
    inbox.begin(1, data_header(3));
    if (is_first) CHECK(inbox.room(1).size() == 3);
    CHECK(feed(inbox, 1, 8, 7) == 3);
    if (!is_first) inbox.post(slot.receive);
    CHECK(slot.done());
    CHECK(slot.receive.header.count == 3);
    CHECK(slot.memory[2] == std::byte{7});
    CHECK(slot.memory[3] == std::byte{0});
    inbox.begin(1, data_header(2));
    CHECK(feed(inbox, 1, 2, 8) == 2);
    inbox.post(next.receive);
    CHECK(next.done());
  }
}

TEST_CASE("a message that is too long is for the first receive behind that has room") {
  Inbox inbox;
  Slot little(2, 1), less(1, 1), enough(4, 1), behind(4, 1);
  for (Slot* slot : {&little, &less, &enough, &behind}) {
    slot->receive.up_to = true;
    inbox.post(slot->receive);
  }
  inbox.begin(1, data_header(3));
  CHECK(little.receive.state == Receive::State::too_long);
  CHECK(less.receive.state == Receive::State::too_long);
  CHECK(little.receive.header.count == 3);
  CHECK(feed(inbox, 1, 3, 5) == 3);
  CHECK(enough.done());
  CHECK(behind.receive.state == Receive::State::waiting);
  inbox.withdraw(behind.receive);

  // One that waits already stays, for whoever has room.
  inbox.begin(1, data_header(3));
  CHECK(feed(inbox, 1, 3, 6) == 3);
  inbox.post(little.receive);
  CHECK(little.receive.state == Receive::State::too_long);
  CHECK(inbox.peek(1, 1, 0, {})->second.count == 3);
  inbox.post(enough.receive);
  CHECK(enough.done());
  CHECK(enough.memory[2] == std::byte{6});
}

TEST_CASE("a sender's count that is not that of its bytes is believed by no receive") {
  Inbox inbox;
  Slot slot(8, 1);
  slot.receive.up_to = true;
  inbox.post(slot.receive);
  Header header = data_header(4);
  header.count = 100;
  inbox.begin(1, header);
  CHECK(slot.receive.state == Receive::State::mismatched);
}

TEST_CASE("a message that is set apart is taken by its own receive, or goes back to its place") {
  Inbox inbox;
  for (const int tag : {1, 1, 2}) {
    inbox.begin(1, data_header(2, tag));
    feed(inbox, 1, 2, 10 * tag + static_cast<int>(inbox.last_seen(1)->tag));
  }
  const std::vector<int> all{0, 1};
  const auto first = inbox.set_apart(1, any_source, any_tag, all);
  REQUIRE(first);
  CHECK(first->from == 1);
  const auto second = inbox.set_apart(1, 1, 1, {});
  REQUIRE(second);
  CHECK(second->arrival > first->arrival);
  CHECK(!inbox.set_apart(1, 1, 1, {}));
  CHECK(!inbox.peek(1, 1, 1, {}));
  CHECK(inbox.peek(1, any_source, any_tag, all)->second.tag == 2);

  Slot waits(2, 1, 1);
  inbox.post(waits.receive);
  CHECK(waits.receive.pending());
  Slot own(2, 1, 1);
  inbox.take_apart(own.receive, *second);
  CHECK(own.done());
  inbox.put_back(*first);
  CHECK(waits.done());
  CHECK(!inbox.peek(1, 1, 1, {}));

  // Back to its place, before those that came behind.
  inbox.begin(1, data_header(2, 2));
  feed(inbox, 1, 2, 99);
  const auto third = inbox.set_apart(1, 1, 2, {});
  inbox.put_back(*third);
  Slot again(2, 1, 2);
  inbox.post(again.receive);
  CHECK(again.memory[0] == std::byte{22});
}

TEST_CASE("what is held, or still comes, is set apart, too") {
  Inbox inbox(1000);
  inbox.begin(1, data_header(600));
  feed(inbox, 1, 100, 1);
  const auto coming = inbox.set_apart(1, 1, 0, {});
  REQUIRE(coming);
  Slot waits(600, 1);
  inbox.post(waits.receive);
  feed(inbox, 1, 500, 1);
  CHECK(waits.receive.pending());
  inbox.begin(1, data_header(700));
  CHECK(inbox.is_held(1));
  inbox.withdraw(waits.receive);
  const auto held = inbox.set_apart(1, 1, 0, {});
  REQUIRE(held);
  CHECK(held->header.bytes == 700);
  CHECK(!inbox.peek(1, 1, 0, {}));
  Slot first(600, 1), second(700, 1);
  inbox.take_apart(first.receive, *coming);
  CHECK(first.done());
  // There is room now, so what was held is parked; it stays apart.
  CHECK(!inbox.is_held(1));
  CHECK(!inbox.peek(1, 1, 0, {}));
  inbox.take_apart(second.receive, *held);
  CHECK(feed(inbox, 1, 700, 4) == 700);
  CHECK(second.done());
  CHECK(second.memory[699] == std::byte{4});
}

TEST_CASE("a synchronous message's receive is done when its sender was told") {
  Inbox inbox;
  Slot early(4, 1), late(4, 1), given_up(4, 1);
  Header header = data_header(4);
  header.sequence = 9;
  CHECK(is_synchronous(header));
  CHECK(!is_synchronous(data_header(4)));
  CHECK(!fits(early.receive, header));  // By no short way.
  inbox.post(early.receive);
  CHECK(inbox.claim(1, header) == nullptr);
  inbox.begin(1, header);
  feed(inbox, 1, 4, 1);
  CHECK(early.receive.state == Receive::State::answering);
  CHECK(early.receive.pending());
  inbox.begin(1, header);
  feed(inbox, 1, 4, 2);
  CHECK(inbox.next_answering() == &early.receive);
  CHECK(inbox.next_answering() == nullptr);
  inbox.post(late.receive);
  CHECK(inbox.has_answering());
  CHECK(late.memory[0] == std::byte{2});
  CHECK(inbox.next_answering() == &late.receive);
  inbox.post(given_up.receive);
  inbox.begin(1, header);
  feed(inbox, 1, 4, 3);
  inbox.withdraw(given_up.receive);
  CHECK(!inbox.has_answering());
}
