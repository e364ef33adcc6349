#include "launcher/report/error_file.hpp"

#include <doctest/doctest.h>

using namespace dlaunch::launcher;

TEST_CASE("error.json as torch's record decorator writes it") {
  const auto report =
      parse_error_file(R"j({"message":{"message":"ValueError: x","extraInfo":)j"
                       R"j({"py_callstack":"Traceback:\n  f()","timestamp":"1668947110"}}})j");
  REQUIRE(report);
  CHECK(report->message == "ValueError: x");
  CHECK(report->callstack == "Traceback:\n  f()");
}

TEST_CASE("error.json with a plain message") {
  const auto report = parse_error_file(R"({"message":"died","timestamp":1668947110})");
  REQUIRE(report);
  CHECK(*report == ErrorReport{.message = "died", .callstack = ""});
}

TEST_CASE("odd members are shown as they are") {
  CHECK(parse_error_file(R"({"message":{"message":{"a":1}}})")->message == R"({"a":1})");
  CHECK(parse_error_file(R"({"message":{"message":null}})")->message.empty());
  CHECK(parse_error_file(R"({"message":{"extraInfo":3}})")->callstack.empty());
}

TEST_CASE("anything else is no report") {
  for (const auto text : {"", "{", "[]", "3", "{}", R"({"message":3})", "{\"message\":\"\xff\"}"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_error_file(text));
  }
  CHECK_FALSE(parse_error_file(std::string(200'000, '[')));
}

TEST_CASE("an outer launcher's error file has the exit code, where there is a place for it") {
  CHECK(with_error_code(R"({"message":{"message":"m","extraInfo":{}}})", -9) ==
        R"({"message":{"message":"m","extraInfo":{},"errorCode":-9}})");
  CHECK(with_error_code(R"({"message":{"errorCode":1}})", 3) == R"({"message":{"errorCode":3}})");
  for (const std::string text : {"", "{", "[]", R"({"message":"died"})", R"({"other":{}})"}) {
    CHECK(with_error_code(text, 3) == text);
  }
  CHECK(with_error_code(R"({ "message": {} })", 0) == R"({ "message": {} })");
}
