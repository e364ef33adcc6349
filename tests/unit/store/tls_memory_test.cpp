// Whichever allocation fails of those that the two ends of a TLS channel make, in their own code
// and in OpenSSL: nothing is thrown across the seam, an end that cannot go on is broken, and says
// so, and the next pair talks. The library is linked here, so that its operator new is the test's.
#include "runtime/base/secret/crypto.hpp"
#include "tests/support/short_memory.hpp"
#include "tests/support/short_openssl.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::test;
using Fed = TlsChannel::Fed;
using Trouble = TlsChannel::Trouble;

extern "C" Crypto* dlaunch_crypto(const char* version, std::string* why);

namespace {

constexpr std::array<std::byte, key_bytes> key{std::byte{1}, std::byte{2}, std::byte{3}};
/// So long that no string holds it without memory of its own.
constexpr std::string_view job = "a job with a name of its own";

/// Passes on what each says until both are silent, and a text each way. Whether both have heard.
bool talk(TlsChannel& client, TlsChannel& server) {
  Bytes down, up, flight, answer;
  if (client.feed({}, down, flight) == Fed::broken) return false;
  while (!flight.empty()) {
    answer.clear();
    if (server.feed(flight, up, answer) == Fed::broken) return false;
    flight.clear();
    if (client.feed(answer, down, flight) == Fed::broken) return false;
  }
  const Bytes text(40'000);
  if (!client.seal(text, flight) || server.feed(flight, up, answer) == Fed::broken) return false;
  answer.clear();
  if (!server.seal(text, answer) || client.feed(answer, down, flight) == Fed::broken) return false;
  return up == text && down == text;
}

/// Whether a new pair has talked. An end that could not go on has said why.
bool meet(Crypto& crypto, const TlsAcceptor& acceptor) try {
  std::string why;
  const auto client = crypto.connect(job, key, why);
  CHECK((client != nullptr || !why.empty()));
  if (!client) return false;
  const auto server = acceptor.accept();
  if (!server) return false;
  const bool heard = talk(*client, *server);
  for (const TlsChannel* end : {client.get(), server.get()}) {
    if (end->trouble() == Trouble::none) continue;
    CHECK_FALSE(heard);
    CHECK_FALSE(end->reason().empty());
  }
  return heard;
} catch (const std::bad_alloc&) {  // For the test's own buffers.
  return false;
}

}  // namespace

TEST_CASE("whichever allocations fail of two ends, they break, and the next two talk") {
  REQUIRE(fails_for_openssl);
  std::string why;
  Crypto* const crypto = dlaunch_crypto(DLAUNCH_VERSION, &why);
  REQUIRE_MESSAGE(crypto != nullptr, why);
  const auto acceptor = crypto->make_acceptor(
      [](std::string_view asked, std::span<std::byte, key_bytes> to, std::string& reason) {
        if (asked != job) return reason = "another job", Crypto::Found::none;
        std::ranges::copy(key, to.begin());
        return allocation_fails(1) ? Crypto::Found::no_memory : Crypto::Found::key;
      },
      why);
  REQUIRE_MESSAGE(acceptor, why);
  REQUIRE(meet(*crypto, *acceptor));
  for (const long failures : {1, 2, 20}) {
    bool failed = true;
    for (long nth = 1; failed; ++nth) {
      REQUIRE(nth < 5000);
      INFO("the allocations from " << nth << " on failed, " << failures << " of them");
      run_short({nth, failures});
      meet(*crypto, *acceptor);
      failed = have_enough();
      REQUIRE(meet(*crypto, *acceptor));
    }
  }
}

TEST_CASE("a key that cannot be derived for want of memory is not derived, and no more") {
  std::string why;
  Crypto* const crypto = dlaunch_crypto(DLAUNCH_VERSION, &why);
  REQUIRE(crypto != nullptr);
  const auto derive = [&](std::array<std::byte, key_bytes>& out) {
    return crypto->derive(key, "for the test", out, why) &&
           crypto->authenticate(key, key, out, why);
  };
  std::array<std::byte, key_bytes> right{}, made{};
  REQUIRE(derive(right));
  bool failed = true;
  for (long nth = 1; failed; ++nth) {
    REQUIRE(nth < 5000);
    why.clear();
    run_short({nth, 1});
    const bool has = derive(made);
    failed = have_enough();
    INFO("the allocation " << nth << " failed");
    if (!has) CHECK_FALSE(why.empty());
    REQUIRE(derive(made));
    CHECK(made == right);
  }
}
