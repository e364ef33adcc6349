#include "runtime/store/c10d/c10d_session.hpp"

#include "tests/support/c10d_peer.hpp"
#include "tests/support/c10d_transcript.hpp"

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::c10d_test;

namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

const std::string hello(as_text(c10d::hello));

}  // namespace

TEST_CASE("the conversations of tests/scenario go as written, whole and byte by byte") {
  const std::filesystem::path folder = DLAUNCH_SOURCE_DIR "/tests/scenario";
  int played = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with("c10d_")) continue;
    CAPTURE(name);
    for (const bool slowly : {false, true}) {
      for (const auto& difference : play(read_file(entry.path()), slowly)) FAIL_CHECK(difference);
    }
    ++played;
  }
  CHECK(played >= 7);
}

TEST_CASE("recorded conversations of the real clients") {
  c10d::Namespace shared;
  Peer torch1(1, shared), torch2(2, shared);
  torch1.say(from_hex("00 03 00 00 00 00 00 00 00 2f 6b 31 02 00 00 00 00 00 00 00 76 31"));
  torch1.say(from_hex("05 01 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2f 6b 31"));
  CHECK(torch1.heard() == from_hex("00"));
  torch1.say(from_hex("02 03 00 00 00 00 00 00 00 2f 6b 31"));
  CHECK(torch1.heard() == from_hex("02 00 00 00 00 00 00 00 76 31"));
  torch1.say(from_hex("03 04 00 00 00 00 00 00 00 2f 63 74 72 05 00 00 00 00 00 00 00"));
  torch1.heard();
  torch1.say(from_hex("03 04 00 00 00 00 00 00 00 2f 63 74 72 fe ff ff ff ff ff ff ff"));
  CHECK(torch1.heard() == from_hex("03 00 00 00 00 00 00 00"));
  torch1.say(from_hex("06"));
  CHECK(torch1.heard() == from_hex("02 00 00 00 00 00 00 00"));

  torch2.say(from_hex("00 ce f7 85 3c 0d 2b 3a 00 00"));
  CHECK(torch2.heard() == from_hex("2b 3a 00 00"));
  torch2.say(
      from_hex("0e 02 00 00 00 00 00 00 00 2f 71 01 00 00 00 00 00 00 00 78 "
               "10 02 00 00 00 00 00 00 00 2f 71"));
  CHECK(torch2.heard() == from_hex("01 00 00 00 00 00 00 00"));
  torch2.say(from_hex("0f 02 00 00 00 00 00 00 00 2f 71"));
  CHECK(torch2.heard() == from_hex("01 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 78"));
}

TEST_CASE("it is told who waits for which keys, and since when") {
  using std::chrono::seconds;
  const Clock::time_point start{};
  c10d::Namespace shared;
  Peer older(1, shared), newer(2, shared), third(3, shared);
  CHECK(shared.waiting().empty());
  const std::string wait_k1 =
      from_hex("05 01 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2f 6b 31");
  older.at(start + seconds(1));
  older.say(wait_k1);
  // Two keys, the first of which comes.
  newer.at(start + seconds(2));
  newer.say(hello + from_hex("06 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2f 6b 32 "
                             "03 00 00 00 00 00 00 00 2f 6b 33"));
  third.say(from_hex("00 03 00 00 00 00 00 00 00 2f 6b 32 01 00 00 00 00 00 00 00 78"));
  auto waiting = shared.waiting();
  REQUIRE(waiting.size() == 2);
  CHECK(waiting[0] == c10d::Waiting{.client = 1, .keys = {"/k1"}, .since = start + seconds(1)});
  CHECK(waiting[1] == c10d::Waiting{.client = 2, .keys = {"/k3"}, .since = start + seconds(2)});
  // PyTorch looks at something else in between.
  older.at(start + seconds(11));
  older.say(from_hex("03 04 00 00 00 00 00 00 00 2f 63 74 72 00 00 00 00 00 00 00 00"));
  CHECK(shared.waiting().size() == 1);
  older.say(wait_k1);
  CHECK(shared.waiting().front().since == start + seconds(1));
  third.say(from_hex("00 03 00 00 00 00 00 00 00 2f 6b 31 01 00 00 00 00 00 00 00 78"));
  newer.hang_up();
  CHECK(shared.waiting().empty());
}

TEST_CASE("a single zero byte says nothing yet") {
  c10d::Namespace shared;
  Peer later_a(1, shared), later_c(2, shared);
  CHECK(later_a.say(from_hex("00")));
  CHECK(later_c.say(from_hex("00")));
  CHECK(later_a.say(from_hex("01 00 00 00 00 00 00 00 6b 00 00 00 00 00 00 00 00")));
  CHECK(later_c.say(from_hex("ce f7 85 3c 07")));
  CHECK(later_c.heard() == from_hex("01 00 00 00 00 00 00 00"));
}

TEST_CASE("garbage is called so, and ends nobody else's connection") {
  c10d::Namespace shared;
  Peer garbage_a(1, shared), garbage_c(2, shared), other(3, shared);
  CHECK_FALSE(garbage_a.say(from_hex("09")));
  CHECK_FALSE(garbage_c.say(hello + from_hex("13")));
  Peer oversized(4, shared);
  CHECK_FALSE(oversized.say(hello + from_hex("01 ff ff ff ff ff ff ff 7f")));
  CHECK(other.say(hello + from_hex("07")));
  CHECK(other.heard() == from_hex("00 00 00 00 00 00 00 00"));
}

TEST_CASE("requests before garbage have been served, those after a refusal are not") {
  c10d::Namespace shared;
  Peer bad(1, shared), refused(2, shared), other(3, shared);
  const auto set = [](const std::string& key) {
    return Wire().code(code_c::set).text(key).text("v").str();
  };
  CHECK_FALSE(bad.say(hello + set("/before") + from_hex("ff")));
  CHECK(refused.say(hello + set("/text") + Wire().code(code_c::add).text("/text").i64(1).str() +
                    set("/after")));
  CHECK(refused.closed());
  other.say(hello + Wire().code(code_c::check).texts({"/before"}).str() +
            Wire().code(code_c::check).texts({"/after"}).str());
  CHECK(other.heard() == from_hex("00 01"));
}

TEST_CASE("a value of the largest size comes and goes, in pieces of any size") {
  c10d::Namespace shared;
  Peer peer(1, shared);
  std::string value(c10d::value_bytes_max, 'v');
  for (std::size_t i = 0; i < value.size(); i += 4096) value[i] = static_cast<char>(i >> 12);
  const auto bytes = hello + Wire().code(code_c::set).text("/k").text(value).str() +
                     Wire().code(code_c::get).text("/k").str();
  std::mt19937 random(7);
  for (std::size_t at = 0; at < bytes.size();) {
    const auto size = std::min<std::size_t>(1 + random() % 65536, bytes.size() - at);
    REQUIRE(peer.say(bytes.substr(at, size)));
    at += size;
  }
  CHECK(peer.heard() == Wire().text(value).str());
}

TEST_CASE("replies behind a wait have a limit") {
  c10d::Namespace shared;
  Peer peer(1, shared);
  const std::string value(c10d::value_bytes_max, 'v');
  peer.say(hello + Wire().code(code_c::set).text("/k").text(value).str() +
           Wire().code(code_c::wait).texts({"/never"}).str());
  const auto get = Wire().code(code_c::get).text("/k").str();
  int answered = 0;
  while (!peer.closed() && answered < 10) {
    peer.say(get);
    ++answered;
  }
  CHECK(peer.closed());
  CHECK(answered == 2);
}

TEST_CASE("while the peer does not read, nothing is asked in its name, and nothing is lost") {
  c10d::Namespace shared;
  Peer peer(1, shared), other(2, shared);
  peer.congest_at(30);
  other.say(hello);
  std::string bytes = hello, expected;
  for (std::uint32_t i = 0; i < 50; ++i) {
    bytes += Wire().code(code_c::ping).u32(i).str();
    expected += Wire().u32(i).str();
  }
  bytes += Wire().code(code_c::set).text("/last").text("v").str() + from_hex("0d 01");
  peer.say(bytes);
  other.say(Wire().code(code_c::check).texts({"/last"}).str());
  CHECK(other.heard() == from_hex("01"));

  std::string heard = peer.heard();
  CHECK(heard.size() == 32);
  for (int turn = 0; turn < 10; ++turn) {
    REQUIRE(peer.say(""));
    heard += peer.heard();
  }
  CHECK(heard == expected);
  other.say(Wire().code(code_c::check).texts({"/last"}).str());
  CHECK(other.heard() == from_hex("00"));
  peer.say(from_hex("00 00 00"));
  CHECK(peer.heard() == from_hex("01 00 00 00"));
}

TEST_CASE("a multi_get is answered as its client reads, however large the answer is") {
  c10d::Namespace shared;
  Peer peer(1, shared), other(2, shared);
  const std::string value(1u << 20, 'v');
  other.say(hello + Wire().code(code_c::set).text("/k").text(value).str());
  peer.congest_at(1);
  // 45 KB that ask for 5 GB.
  const std::vector<std::string> keys(5000, "/k");
  REQUIRE(peer.say(hello + Wire().code(code_c::multi_get).texts(keys).str() + from_hex("0d 01")));
  for (int turn = 0; turn < 10; ++turn) {
    CHECK(peer.heard() == Wire().text(value).str());
    REQUIRE(peer.say(""));
  }
  // The answer is what the key holds when its turn comes, and nothing once it is gone.
  other.say(Wire().code(code_c::set).text("/k").text("new").str());
  peer.heard();
  REQUIRE(peer.say(""));
  CHECK(peer.heard() == Wire().text("new").str());
  other.say(Wire().code(code_c::erase).text("/k").str());
  REQUIRE(peer.say(""));
  CHECK(peer.heard() == Wire().text("").str());
  peer.congest_at(std::size_t{1} << 40);
  REQUIRE(peer.say(""));
  std::string rest;
  for (int i = 0; i < 5000 - 13; ++i) rest += Wire().text("").str();
  CHECK(peer.heard() == rest);
  // And then what was asked behind it.
  REQUIRE(peer.say(from_hex("00 00 00")));
  CHECK(peer.heard() == from_hex("01 00 00 00"));
}

TEST_CASE("a multi_get behind a wait is kept, up to the limit") {
  c10d::Namespace shared;
  Peer peer(1, shared);
  std::string why;
  shared.hear_refusal = [&](std::uint64_t, const std::string& told) { why = told; };
  const std::string value(1u << 20, 'v');
  peer.say(hello + Wire().code(code_c::set).text("/k").text(value).str() +
           Wire().code(code_c::wait).texts({"/w"}).str() +
           Wire().code(code_c::multi_get).texts({"/k", "/none"}).str() +
           Wire().code(code_c::set).text("/w").text("").str());
  CHECK(peer.heard() == from_hex("00") + Wire().text(value).text("").str());
  const std::vector<std::string> keys(128u << 10, "/k");
  peer.say(Wire().code(code_c::wait).texts({"/never"}).str() +
           Wire().code(code_c::multi_get).texts(keys).str());
  CHECK(peer.closed());
  CHECK(why.starts_with("answers of more than 67108864 bytes"));
}

TEST_CASE("why a connection is closed is told, with key and limit") {
  c10d::Namespace shared;
  std::string why;
  shared.hear_refusal = [&](std::uint64_t client, const std::string& told) {
    why = std::to_string(client) + ": " + told;
  };
  const auto refusal = [&](const std::string& bytes) {
    why.clear();
    Peer peer(7, shared);
    peer.say(hello + bytes);
    CHECK(peer.closed());
    return why;
  };
  const auto ping = Wire().code(code_c::ping).u32(1).str();
  CHECK(refusal(ping + Wire().code(code_c::set).text("/k").u64(1ull << 36).str()) ==
        "7: a value for '/k' of 68719476736 bytes; the limit is 33554432");
  CHECK(
      refusal(ping + Wire().code(code_c::compare_set).text("/k").text("").u64(1ull << 36).str()) ==
      "7: a value for '/k' of 68719476736 bytes; the limit is 33554432");
  CHECK(refusal(ping + Wire()
                           .code(code_c::multi_set)
                           .u64(2)
                           .text("/a")
                           .text("v")
                           .text("/b")
                           .u64(1ull << 36)
                           .str()) ==
        "7: a value for '/b' of 68719476736 bytes; the limit is 33554432");
  CHECK(refusal(ping + Wire().code(code_c::get).u64(9000).str()) ==
        "7: a key of 9000 bytes; the limit is 8192");
  CHECK(refusal(ping + Wire().code(code_c::wait).u64(1u << 20).str()) ==
        "7: 1048576 keys in one request; the limit is 131072");
  CHECK(refusal(ping + from_hex("77")) ==
        "7: there is no operation 119 in the protocol of PyTorch's that dlaunch knows");
  CHECK(refusal(Wire().code(code_c::set).text("/t").text("x").str() +
                Wire().code(code_c::add).text("/t").i64(1).str()) ==
        "7: the value of '/t' is not a whole number");
  // A stranger, who has said nothing of sense before.
  why.clear();
  CHECK_FALSE(Peer(8, shared).say(from_hex("77")));
  CHECK(why.empty());
}

TEST_CASE("keys that are waited for have a limit") {
  c10d::Namespace shared;
  Peer peer(1, shared);
  peer.say(hello);
  const std::vector<std::string> keys(128u << 10, "/never");
  const auto wait = Wire().code(code_c::wait).texts(keys).str();
  int asked = 0;
  while (!peer.closed() && asked < 100) {
    peer.say(wait);
    ++asked;
  }
  CHECK(asked == 9);
}

TEST_CASE("pending waits have a limit") {
  c10d::Namespace shared;
  Peer peer(1, shared);
  peer.say(hello);
  const auto wait = Wire().code(code_c::wait).texts({"/never"}).str();
  int asked = 0;
  while (!peer.closed() && asked < 100000) {
    peer.say(wait);
    ++asked;
  }
  CHECK(peer.closed());
  CHECK(asked == 1025);
}

TEST_CASE("barriers of clients that have gone leave nothing behind") {
  c10d::Namespace shared;
  {
    Peer one(1, shared), two(2, shared);
    one.say(hello + Wire().code(code_c::barrier).text("/b").i64(3).str());
    two.say(hello + Wire().code(code_c::barrier).text("/b").i64(3).str());
    CHECK(shared.barriers.size() == 1);
  }
  CHECK(shared.barriers.size() == 0);
}

/// Random requests of both dialects over few keys: however the bytes are cut, every client hears
/// the same, and nothing breaks.
TEST_CASE("random conversations do not depend on how the bytes are cut") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    c10d::Namespace whole_shared, cut_shared;
    std::mt19937 random(seed);
    const auto pick = [&](auto bound) { return static_cast<unsigned>(random() % bound); };
    std::vector<std::unique_ptr<Peer>> whole, cut;
    std::vector<c10d::Dialect> dialects;
    for (std::uint64_t client = 0; client < 4; ++client) {
      dialects.push_back(client % 2 == 0 ? c10d::Dialect::a : c10d::Dialect::c);
      whole.push_back(std::make_unique<Peer>(client, whole_shared));
      cut.push_back(std::make_unique<Peer>(client, cut_shared));
      if (client % 2 == 1) {
        whole.back()->say(hello);
        cut.back()->say_slowly(hello);
      }
    }
    static constexpr const char* both[] = {
        "set /k v",           "set /c 1",     "get /k",      "add /c 3", "check /k /l",
        "wait /k /l",         "count",        "erase /k",    "erase /l", "set /l ''",
        "compare_set /k v w", "add /fresh 1", "erase /fresh"};
    static constexpr const char* only_c[] = {
        "append /k x",  "multi_get /k /l", "multi_set /k 1 /l 2",
        "cancel_wait",  "ping 5",          "push /q a",
        "pop /q",       "queue_size /q",   "list",
        "barrier /b 9", "wait /q",         "wait /fresh /never",
        "erase /b"};
    for (int step = 0; step < 120; ++step) {
      const auto who = pick(4u);
      const bool c = dialects[who] == c10d::Dialect::c;
      const auto choice = pick(std::size(both) + (c ? std::size(only_c) : 0));
      const std::string text =
          choice < std::size(both) ? both[choice] : only_c[choice - std::size(both)];
      const auto bytes = request_bytes(dialects[who], text);
      whole[who]->say(bytes);
      cut[who]->say_slowly(bytes);
      for (std::size_t i = 0; i < whole.size(); ++i) REQUIRE(whole[i]->heard() == cut[i]->heard());
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
      CHECK(whole[i]->closed() == cut[i]->closed());
      whole[i]->hang_up();
    }
    CHECK(whole_shared.barriers.size() == 0);
  }
}
