#include "rendezvous/daemon/events.hpp"

#include <memory>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace dlaunch::rendezvous;

TEST_CASE("an event as JSON; names that are no text do not break it") {
  const auto json = nlohmann::json::parse(event_json({.level = LogLine::Level::warning,
                                                      .job = "a\n\xff",
                                                      .sentence = "epoch 3 is stopped",
                                                      .told = true,
                                                      .event = LogLine::Event::stopping,
                                                      .epoch = 3,
                                                      .attempt = 1},
                                                     5));
  CHECK(json["time_ms"] == 5);
  CHECK(json["event"] == "stopping");
  CHECK(json["level"] == "warning");
  CHECK(json["epoch"] == 3);
  CHECK(json["attempt"] == 1);
  CHECK(json["sentence"] == "epoch 3 is stopped");
  LogLine longest;
  longest.sentence = std::string(100'000, 'x');
  const std::string text = event_json(longest, 0);
  CHECK(text.size() < 3000);
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("a reader goes on where it was, and one that is new has all that is left") {
  const auto ring = std::make_shared<EventRing>("boot");
  EventFeed early(ring, "");
  CHECK(early.next() == "retry: 2000\n\n");
  CHECK(early.next().empty());
  ring->add("one");
  ring->add("two");
  CHECK(early.next() == "id: boot-1\ndata: one\n\nid: boot-2\ndata: two\n\n");
  CHECK(early.next().empty());
  CHECK(EventFeed(ring, "boot-1").next() == "retry: 2000\n\nid: boot-2\ndata: two\n\n");
  CHECK(EventFeed(ring, "boot-2").next() == "retry: 2000\n\n");
  // What another daemon said, what was never said, and what is no id.
  for (const char* id : {"", "other-2", "boot-3", "boot-", "boot-x", "boot-1x", "2",
                         "boot-99999999999999999999999"}) {
    CHECK_MESSAGE(EventFeed(ring, id).next().find("id: boot-1\n") != std::string::npos, id);
  }
}

TEST_CASE("the ring has a limit; a reader that fell behind hears how much it missed") {
  const auto ring = std::make_shared<EventRing>("b");
  EventFeed slow(ring, "");
  slow.next();
  for (std::size_t i = 0; i < EventRing::events_max + 10; ++i) ring->add("x");
  CHECK(slow.next().starts_with("event: gap\ndata: 10\n\nid: b-11\n"));
  // One that comes now has missed nothing that it could have had.
  CHECK(EventFeed(ring, "").next().starts_with("retry: 2000\n\nid: b-11\n"));
  CHECK(EventFeed(ring, "b-3")
            .next()
            .starts_with("retry: 2000\n\nevent: gap\ndata: 7\n\nid: b-11\n"));
  // By bytes, too; and it comes in pieces.
  for (int i = 0; i < 100; ++i) ring->add(std::string(32u << 10, 'y'));
  EventFeed late(ring, "");
  std::size_t bytes = 0;
  for (std::string piece = late.next(); !piece.empty(); piece = late.next()) {
    CHECK(piece.size() < (128u << 10));
    bytes += piece.size();
  }
  CHECK(bytes > EventRing::bytes_max / 2);
  CHECK(bytes < EventRing::bytes_max * 2);
}
