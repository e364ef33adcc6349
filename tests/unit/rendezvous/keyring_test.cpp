// The secrets that a daemon accepts, and those that it did.
#include "rendezvous/access/keyring.hpp"

#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using rendezvous::Keyring;

namespace {

rendezvous::Granted secret(char first, store::Role role = store::Role::node) {
  const std::string text = std::string(1, first) + "0112233445566778899aabbccddeeff0";
  return {Secret::parse(as_bytes(text.substr(0, 32)), "the test"), role};
}

/// "1 2 3-": the numbers in the order in which they are tried; withdrawn ones with a dash.
std::string numbers(const Keyring& keyring) {
  std::string text;
  for (const auto& key : keyring.keys()) {
    text +=
        (text.empty() ? "" : " ") + std::to_string(key.number) + (key.refusal.empty() ? "" : "-");
  }
  return text;
}

}  // namespace

TEST_CASE("a secret keeps its number for as long as it is known") {
  Keyring keyring;
  CHECK(keyring.empty());
  keyring.accept({secret('a')});
  CHECK(numbers(keyring) == "1");
  keyring.accept({secret('b'), secret('a')});
  CHECK(numbers(keyring) == "2 1");
  keyring.accept({secret('b')});
  CHECK(numbers(keyring) == "2 1-");
  keyring.accept({secret('b')});
  CHECK(numbers(keyring) == "2 1-");
  // A step back finds what there was.
  keyring.accept({secret('a'), secret('b')});
  CHECK(numbers(keyring) == "1 2");
  keyring.accept({secret('c'), secret('c')});
  CHECK(numbers(keyring) == "3 1- 2-");
  keyring.accept({secret('d')});
  CHECK(numbers(keyring) == "4 3- 1-");
  CHECK(!keyring.empty());
}

TEST_CASE("the report says how many connections go by which secret") {
  Keyring keyring;
  std::map<std::uint64_t, std::size_t> counts = {{1, 3}, {2, 1}};
  const auto report = [&] {
    return keyring.report([&](std::uint64_t key) { return counts[key]; });
  };
  keyring.accept({secret('a')});
  CHECK(report() == "1 secret is accepted: 3 connections by it");
  keyring.accept({secret('b'), secret('a')});
  CHECK(report() ==
        "2 secrets are accepted: 1 connection by the first, 3 connections by the second");
  keyring.accept({secret('b')});
  CHECK(report() == "1 secret is accepted: 1 connection by it, 3 connections by a withdrawn one");
  counts[1] = 0;
  CHECK(report() == "1 secret is accepted: 1 connection by it");
}

TEST_CASE("each role has secrets of its own") {
  using store::Role;
  Keyring keyring;
  std::map<std::uint64_t, std::size_t> counts = {{1, 3}, {3, 1}};
  keyring.accept({secret('a'), secret('b', Role::tool), secret('c', Role::read_only)});
  const auto keys = keyring.keys();
  REQUIRE(keys.size() == 3);
  CHECK(keys[0].role == Role::node);
  CHECK(keys[1].role == Role::tool);
  CHECK(keys[2].role == Role::read_only);
  CHECK(keyring.report([&](std::uint64_t key) { return counts[key]; }) ==
        "3 secrets are accepted: 3 connections by the one for nodes, 0 connections by the one for "
        "tools, 1 connection by the one for reading");
  // A file that was copied in haste.
  try {
    keyring.accept({secret('d'), secret('d', Role::tool)});
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "one secret is given for the roles node and tool: each role needs a secret of its own");
  }
  CHECK(numbers(keyring) == "1 2 3");
  // A secret of another role is another one.
  keyring.accept({secret('a'), secret('c', Role::tool)});
  CHECK(numbers(keyring) == "1 4 2- 3-");
}
