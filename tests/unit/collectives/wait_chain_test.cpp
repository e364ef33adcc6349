// The chains that ranks hand around that wait for each other.
#include "collectives/transport/message/wait_chain.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::transport;

namespace {

WaitLink link(int rank, std::uint64_t communicator, const std::string& call) {
  return {rank, 7, communicator, 3, call};
}

WaitChain ring() {
  return {WaitChain::Stage::again,
          {link(2, 1, "barrier #3 [a.cpp:4]"), link(0, 2, "barrier #3 of 'b' [a.cpp:5]"),
           link(3, 1, "barrier #3 [a.cpp:4]")}};
}

}  // namespace

TEST_CASE("a chain is read as it was written, its calls' texts once each") {
  const auto bytes = encode(ring());
  REQUIRE(bytes);
  const auto read = decode_chain(*bytes);
  REQUIRE(read);
  CHECK(read->stage == WaitChain::Stage::again);
  REQUIRE(read->links.size() == 3);
  CHECK(read->links[1].rank == 0);
  CHECK(read->links[1].turn == 7);
  CHECK(read->links[2].in_call_of(read->links[0]));
  CHECK(read->place_of(3) == 2);
  CHECK(read->place_of(1) == 3);

  WaitChain many;
  for (int rank = 0; rank < 100; ++rank) many.links.push_back(link(rank, 1, std::string(150, 'x')));
  REQUIRE(encode(many));
  CHECK(decode_chain(*encode(many))->is_one_call());
  for (auto& each : many.links) each.call += std::to_string(each.rank);
  CHECK_FALSE(encode(many));  // Longer than a control message may be.
}

TEST_CASE("what is no chain is none") {
  const Bytes whole = *encode(ring());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CHECK_FALSE(decode_chain(BytesView(whole).first(size)));
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  CHECK_FALSE(decode_chain(longer));
  for (const std::size_t place : {0U, 2U}) {  // No stage; no links, or too many.
    for (const int value : {0, 255}) {
      Bytes wrong = whole;
      wrong[place] = wrong[place + 1] = static_cast<std::byte>(value);
      CHECK_FALSE(decode_chain(wrong));
    }
  }
}

TEST_CASE("a ring is told with each call once") {
  CHECK(to_string(ring()) ==
        "the ranks wait for each other: rank 0 is in barrier #3 of 'b' [a.cpp:5] and waits for "
        "rank 3; ranks 3, 2 are in barrier #3 [a.cpp:4] and wait for rank 0");
  WaitChain one{WaitChain::Stage::found, {link(0, 1, "a"), link(1, 1, "a")}};
  CHECK(one.is_one_call());
  CHECK_FALSE(ring().is_one_call());
}
