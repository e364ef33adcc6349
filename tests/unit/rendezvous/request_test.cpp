#include "rendezvous/http/request.hpp"

#include <doctest/doctest.h>

using namespace dlaunch::rendezvous;

namespace {

unsigned code_for(std::string_view host, std::string_view origin) {
  PageRequest request;
  request.host = host;
  request.origin = origin;
  const auto refusal = refusal_of_foreign(request);
  return refusal ? refusal->code : 200;
}

}  // namespace

TEST_CASE("names of loopback, with and without a port") {
  for (const char* host : {"localhost", "LocalHost:1", "127.0.0.1", "127.0.0.1:29401", "127.1.2.3",
                           "[::1]", "[::1]:65535"}) {
    CHECK_MESSAGE(is_loopback_host(host), host);
  }
  for (const char* host :
       {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1:65536",
        "127.0.0.1:", "127.0.0.1:80x", "127.0.0", "127.0.0.256", "127.0.0.1.1", "10.0.0.1", "[::2]",
        "[::1", "[::1]x", "::1", "", ":80", "localhost:80:80", "127.0.0.-1", "0.0.0.0"}) {
    CHECK_MESSAGE(!is_loopback_host(host), host);
  }
}

TEST_CASE("a target in absolute form is taken apart, whatever it is") {
  const auto apart = [](std::string_view target) {
    const auto found = absolute_target(target);
    return found ? std::string(found->host) + " " + std::string(found->path) : "none";
  };
  CHECK(apart("http://127.0.0.1:29401/healthz") == "127.0.0.1:29401 /healthz");
  CHECK(apart("HTTPS://[::1]:1/a/b?c=/d") == "[::1]:1 /a/b?c=/d");
  CHECK(apart("http://localhost") == "localhost /");
  CHECK(apart("http://localhost?a=/b") == "localhost /");
  CHECK(apart("http://evil@127.0.0.1/") == "evil@127.0.0.1 /");
  CHECK(apart("http:///healthz") == " /healthz");
  CHECK(apart("http://") == " /");
  for (const char* target : {"/healthz", "/http://a/b", "http:/a", "ftp://a/b", "*", "a:1", ""}) {
    CHECK_MESSAGE(apart(target) == "none", target);
  }
}

TEST_CASE("another site's page may not read the status, whatever its name leads to") {
  CHECK(code_for("127.0.0.1:29401", "") == 200);
  CHECK(code_for("", "") == 200);  // A program, of HTTP/1.0.
  CHECK(code_for("localhost:8080", "http://localhost:8080") == 200);
  CHECK(code_for("localhost:8080", "https://localhost:8080") == 200);
  CHECK(code_for("rebound.example:29401", "") == 403);
  CHECK(code_for("rebound.example:29401", "http://rebound.example:29401") == 403);
  CHECK(code_for("127.0.0.1:29401", "http://evil.example") == 403);
  CHECK(code_for("127.0.0.1:29401", "http://127.0.0.1:3000") == 403);
  CHECK(code_for("127.0.0.1:29401", "null") == 403);
  CHECK(code_for("", "http://") == 200);
  CHECK(code_for("", "http://evil.example") == 403);
}

TEST_CASE("which form of metrics a reader prefers") {
  CHECK(
      prefers_openmetrics("application/openmetrics-text;version=1.0.0,application/"
                          "openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/"
                          "*;q=0.1"));
  CHECK(prefers_openmetrics("Application/OpenMetrics-Text"));
  CHECK(prefers_openmetrics(" application/openmetrics-text ; Q = 0.5 , */*;q=0.1"));
  CHECK(!prefers_openmetrics(""));
  CHECK(!prefers_openmetrics("*/*"));
  CHECK(!prefers_openmetrics("text/plain"));
  CHECK(!prefers_openmetrics("text/plain;q=0.9, application/openmetrics-text;q=0.8"));
  CHECK(!prefers_openmetrics("application/openmetrics-text;q=0"));
  CHECK(!prefers_openmetrics("application/openmetrics-text;q=0.000"));
  CHECK(!prefers_openmetrics("application/openmetrics-text;q=x"));
  CHECK(!prefers_openmetrics("application/openmetrics-text;q=9"));
}
