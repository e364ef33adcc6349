#include "runtime/store/c10d/decoder.hpp"
#include "tests/support/c10d_bytes.hpp"

#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::c10d;
using namespace dlaunch::c10d_test;
using Status = Decoder::Status;

namespace {

/// Decodes exactly one request.
Request decode(Decoder& decoder, const std::string& bytes) {
  Request request;
  const auto result = decoder.next(as_bytes(bytes), request);
  CHECK(result == Decoder::Result{Status::complete, bytes.size()});
  return request;
}

Status status(Dialect dialect, const std::string& bytes) {
  Decoder decoder(dialect);
  Request request;
  return decoder.next(as_bytes(bytes), request).status;
}

/// A request as text, so that two can be compared after their bytes have moved.
std::string describe(const Request& request) {
  std::ostringstream text;
  text << static_cast<int>(request.op) << ' ' << request.key << '=' << as_text(request.value) << ','
       << as_text(request.desired) << ' ' << request.number;
  for (const auto key : request.keys) text << ' ' << key;
  for (const auto value : request.values) text << ' ' << as_text(value);
  return text.str();
}

/// Every operation of a dialect once.
std::vector<std::string> every_request(Dialect dialect) {
  const std::string k = "/some/key", v = "value";
  if (dialect == Dialect::a) {
    using namespace code_a;
    return {
        Wire().code(set).text(k).text(v).str(),
        Wire().code(compare_set).text(k).text(v).text("").str(),
        Wire().code(get).text(k).str(),
        Wire().code(add).text(k).i64(-7).str(),
        Wire().code(check).texts({k, "", "/b"}).str(),
        Wire().code(wait).texts({k}).str(),
        Wire().code(count).str(),
        Wire().code(watch).text(k).str(),
        Wire().code(erase).text(k).str(),
    };
  }
  using namespace code_c;
  return {
      Wire().code(validate).u32(magic).str(),
      Wire().code(set).text(k).text(v).str(),
      Wire().code(compare_set).text(k).text(v).text("desired").str(),
      Wire().code(get).text("").str(),
      Wire().code(add).text(k).i64(1).str(),
      Wire().code(check).texts({}).str(),
      Wire().code(wait).texts({k, k}).str(),
      Wire().code(count).str(),
      Wire().code(erase).text(k).str(),
      Wire().code(code_c::append).text(k).text(v).str(),
      Wire().code(code_c::multi_get).texts({"/a", "/b", "/c"}).str(),
      Wire().code(code_c::multi_set).u64(2).text("/a").text("1").text("/b").text("").str(),
      Wire().code(cancel_wait).str(),
      Wire().code(ping).u32(0xFFFFFFFF).str(),
      Wire().code(push).text(k).text(v).str(),
      Wire().code(pop).text(k).str(),
      Wire().code(queue_size).text(k).str(),
      Wire().code(list).str(),
      Wire().code(code_c::barrier).text(k).i64(4).str(),
  };
}

}  // namespace

TEST_CASE("the first five bytes tell the dialects apart") {
  const std::string hello_c = from_hex("00 ce f7 85 3c");
  for (std::size_t size = 0; size < 5; ++size) {
    CHECK(detect(as_bytes(hello_c).first(size)) == std::nullopt);
  }
  CHECK(detect(as_bytes(hello_c)) == Dialect::c);
  CHECK(detect(as_bytes(hello_c + "more")) == Dialect::c);
  CHECK(detect(as_bytes(from_hex("06"))) == Dialect::a);
  CHECK(detect(as_bytes(from_hex("00 03"))) == Dialect::a);
  CHECK(detect(as_bytes(from_hex("00 ce f7 85 3d"))) == Dialect::a);
}

TEST_CASE("recorded bytes of torch 1.13.1") {
  Decoder decoder(Dialect::a);
  auto bytes = from_hex("00 03 00 00 00 00 00 00 00 2f 6b 31 02 00 00 00 00 00 00 00 76 31");
  auto request = decode(decoder, bytes);
  CHECK(request.op == Op::set);
  CHECK(request.key == "/k1");
  CHECK(as_text(request.value) == "v1");

  bytes = from_hex("05 01 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2f 6b 31");
  request = decode(decoder, bytes);
  CHECK(request.op == Op::wait);
  REQUIRE(request.keys.size() == 1);
  CHECK(request.keys[0] == "/k1");

  bytes = from_hex("03 04 00 00 00 00 00 00 00 2f 63 74 72 fe ff ff ff ff ff ff ff");
  request = decode(decoder, bytes);
  CHECK(request.op == Op::add);
  CHECK(request.key == "/ctr");
  CHECK(request.number == -2);
}

TEST_CASE("recorded bytes of torch 2.13.0") {
  Decoder decoder(Dialect::c);
  const auto bytes = from_hex("00 ce f7 85 3c 0d 2b 3a 00 00");
  Request request;
  REQUIRE(decoder.next(as_bytes(bytes), request) == Decoder::Result{Status::complete, 5});
  CHECK(request.op == Op::validate);
  CHECK(request.number == magic);
  REQUIRE(decoder.next(as_bytes(bytes).subspan(5), request) ==
          Decoder::Result{Status::complete, 5});
  CHECK(request.op == Op::ping);
  CHECK(request.number == 0x3a2b);

  const auto barrier = from_hex("12 03 00 00 00 00 00 00 00 2f 63 63 02 00 00 00 00 00 00 00");
  request = decode(decoder, barrier);
  CHECK(request.op == Op::barrier);
  CHECK(request.key == "/cc");
  CHECK(request.number == 2);
}

TEST_CASE("fields land where they belong") {
  Decoder decoder(Dialect::c);
  auto bytes = Wire().code(code_c::compare_set).text("/k").text("old").text("new").str();
  auto request = decode(decoder, bytes);
  CHECK(as_text(request.value) == "old");
  CHECK(as_text(request.desired) == "new");

  bytes = Wire().code(code_c::multi_set).u64(2).text("/a").text("1").text("/b").text("").str();
  request = decode(decoder, bytes);
  REQUIRE(request.keys.size() == 2);
  REQUIRE(request.values.size() == 2);
  CHECK(request.keys[1] == "/b");
  CHECK(as_text(request.values[0]) == "1");
  CHECK(request.values[1].empty());

  bytes = Wire().code(code_c::get).text("/k").str();
  request = decode(decoder, bytes);
  CHECK(request.keys.empty());
  CHECK(request.value.empty());
  CHECK(request.number == 0);
}

TEST_CASE("a request in single bytes, in a buffer that moves, is the same request") {
  for (const auto dialect : {Dialect::a, Dialect::c}) {
    Decoder whole(dialect), drops(dialect);
    for (const auto& bytes : every_request(dialect)) {
      Request expected;
      REQUIRE(whole.next(as_bytes(bytes), expected).status == Status::complete);
      Request request;
      for (std::size_t size = 0; size < bytes.size(); ++size) {
        const std::string moved = bytes.substr(0, size);
        const auto result = drops.next(as_bytes(moved), request);
        REQUIRE(result.status == Status::incomplete);
        CHECK(result.size > size);
        CHECK(result.size <= bytes.size());
      }
      REQUIRE(drops.next(as_bytes(bytes), request) ==
              Decoder::Result{Status::complete, bytes.size()});
      CHECK(describe(request) == describe(expected));
    }
  }
}

TEST_CASE("pipelined requests come out one by one, in order") {
  for (const auto dialect : {Dialect::a, Dialect::c}) {
    const auto requests = every_request(dialect);
    std::string all;
    for (const auto& request : requests) all += request;
    Decoder decoder(dialect);
    auto unread = as_bytes(all);
    std::size_t index = 0;
    for (; !unread.empty(); ++index) {
      Request request;
      const auto result = decoder.next(unread, request);
      REQUIRE(result == Decoder::Result{Status::complete, requests[index].size()});
      unread = unread.subspan(result.size);
    }
    CHECK(index == requests.size());
  }
}

TEST_CASE("an unknown operation is invalid") {
  for (int code = 0; code < 256; ++code) {
    const std::string bytes(1, static_cast<char>(code));
    CHECK((status(Dialect::a, bytes) == Status::invalid) == (code > 8));
    CHECK((status(Dialect::c, bytes) == Status::invalid) == (code > 18));
  }
}

TEST_CASE("a length or count over its limit is invalid as soon as it is read") {
  const auto huge = {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{0xFFFFFFFF}};
  for (const auto size : huge) {
    CHECK(status(Dialect::a, Wire().code(code_a::get).u64(size).str()) == Status::invalid);
    CHECK(status(Dialect::a, Wire().code(code_a::set).text("/k").u64(size).str()) ==
          Status::invalid);
    CHECK(status(Dialect::c, Wire().code(code_c::wait).u64(size).str()) == Status::invalid);
    CHECK(status(Dialect::c, Wire().code(code_c::multi_set).u64(size).str()) == Status::invalid);
    CHECK(status(Dialect::c, Wire().code(code_c::multi_set).u64(1).text("/k").u64(size).str()) ==
          Status::invalid);
    CHECK(status(Dialect::c, Wire().code(code_c::check).u64(2).text("/k").u64(size).str()) ==
          Status::invalid);
  }
}

TEST_CASE("no limit is below that of PyTorch's own server") {
  CHECK(key_bytes_max >= 8u << 10);
  CHECK(value_bytes_max >= 8u << 20);
  CHECK(keys_per_request_max >= 128u << 10);
}

TEST_CASE("the limits themselves are accepted, one more is not") {
  const auto get = [](std::size_t key) { return Wire().code(code_c::get).u64(key).str(); };
  CHECK(status(Dialect::c, get(key_bytes_max)) == Status::incomplete);
  CHECK(status(Dialect::c, get(key_bytes_max + 1)) == Status::invalid);
  const auto set = [](std::size_t value) {
    return Wire().code(code_c::set).text("/k").u64(value).str();
  };
  CHECK(status(Dialect::c, set(value_bytes_max)) == Status::incomplete);
  CHECK(status(Dialect::c, set(value_bytes_max + 1)) == Status::invalid);
  const auto wait = [](std::size_t count) { return Wire().code(code_c::wait).u64(count).str(); };
  CHECK(status(Dialect::c, wait(keys_per_request_max)) == Status::incomplete);
  CHECK(status(Dialect::c, wait(keys_per_request_max + 1)) == Status::invalid);
}

TEST_CASE("a request of many large values ends at the limit of a request") {
  const std::string value(value_bytes_max, 'v');
  Wire wire;
  const std::size_t many = request_bytes_max / value_bytes_max + 1;
  wire.code(code_c::multi_set).u64(many);
  for (std::size_t i = 0; i < many; ++i) wire.text("/k").text(value);
  CHECK(wire.str().size() > request_bytes_max);
  CHECK(status(Dialect::c, wire.str()) == Status::invalid);

  const auto both = Wire().code(code_c::compare_set).text("/k").text(value).text(value).str();
  CHECK(status(Dialect::c, both) == Status::complete);
}

TEST_CASE("a list of the largest count costs its size, also in small pieces") {
  Wire wire;
  wire.code(code_c::check).u64(keys_per_request_max);
  for (std::size_t i = 0; i < keys_per_request_max; ++i) wire.text("");
  const auto bytes = as_bytes(wire.str());
  Decoder decoder(Dialect::c);
  Request request;
  std::size_t calls = 0;
  for (std::size_t size = 1; size < bytes.size(); size += 7, ++calls) {
    REQUIRE(decoder.next(bytes.first(size), request).status == Status::incomplete);
  }
  REQUIRE(decoder.next(bytes, request) == Decoder::Result{Status::complete, bytes.size()});
  CHECK(request.keys.size() == keys_per_request_max);
  // The next request starts from nothing.
  const auto next = Wire().code(code_c::check).texts({"/k"}).str();
  CHECK(decode(decoder, next).keys.size() == 1);
}
