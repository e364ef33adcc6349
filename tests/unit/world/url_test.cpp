#include "runtime/world/member/url.hpp"

#include <dlaunch/error.hpp>

#include <doctest/doctest.h>

using namespace dlaunch;
using Scheme = InitUrl::Scheme;

namespace {
std::string refusal(std::string_view url) {
  try {
    parse_init_url(url);
  } catch (const Error& error) {
    CHECK(error.code() == Errc::misuse);
    return error.what();
  }
  return "";
}
}  // namespace

TEST_CASE("the four kinds of init URL") {
  CHECK(parse_init_url("dlaunch://").scheme == Scheme::dlaunch);
  CHECK(parse_init_url("env://").scheme == Scheme::env);

  const InitUrl tcp = parse_init_url("tcp://head:29500?rank=3&world_size=4");
  CHECK(tcp.scheme == Scheme::tcp);
  CHECK(tcp.host == "head");
  CHECK(tcp.port == 29500);
  CHECK(tcp.rank == 3);
  CHECK(tcp.world_size == 4);

  const InitUrl v6 = parse_init_url("tcp://[::1]:80");
  CHECK(v6.host == "::1");
  CHECK(v6.port == 80);
  CHECK(v6.rank == -1);

  const InitUrl file = parse_init_url("file:///tmp/meet?world_size=2&rank=0");
  CHECK(file.scheme == Scheme::file);
  CHECK(file.path == "/tmp/meet");
  CHECK(file.rank == 0);
  CHECK(parse_init_url("file://here/meet").path == "here/meet");
}

TEST_CASE("what is wrong with a URL is said, with the URL") {
  for (const char* url : {"",
                          "env",
                          "http://a:1",
                          "env://x",
                          "dlaunch://x",
                          "tcp://",
                          "tcp://:1",
                          "tcp://host",
                          "tcp://host:",
                          "tcp://host:0",
                          "tcp://host:65536",
                          "tcp://host:12a",
                          "tcp://::1:5",
                          "tcp://[::1]",
                          "file://",
                          "tcp://host:1?rank=x",
                          "tcp://host:1?rank=-1",
                          "tcp://host:1?world_size=0",
                          "tcp://host:1?rank",
                          "tcp://host:1?rank=0&rank=1",
                          "tcp://host:1?rank=0&world_size=2&rank=0",
                          "file:///meet?world_size=2&rank=0&world_size=3",
                          "tcp://host:1?color=2"}) {
    CAPTURE(url);
    CHECK(refusal(url).find("'" + std::string(url) + "'") != std::string::npos);
  }
  CHECK(refusal("tcp://host:1?color=2").find("'color'") != std::string::npos);
  CHECK(refusal("tcp://host:1?rank=0&rank=1").ends_with("has 'rank' twice"));
}
