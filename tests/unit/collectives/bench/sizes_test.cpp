#include "collectives/bench/sizes.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::bench;

namespace {

using Sizes = std::vector<std::size_t>;

Sizes sizes(std::string_view text) {
  const auto read = read_sizes(text);
  REQUIRE_MESSAGE(std::holds_alternative<Sizes>(read), text);
  return std::get<Sizes>(read);
}

std::string complaint(std::string_view text) {
  const auto read = read_sizes(text);
  const auto* complaint = std::get_if<Complaint>(&read);
  return complaint == nullptr ? "" : complaint->sentence;
}

}  // namespace

TEST_CASE("sizes: lists, ranges by a factor, ranges by a step") {
  CHECK(sizes("4") == Sizes{4});
  CHECK(sizes("4,4K,1M,2g") == Sizes{4, 4096, 1048576, std::size_t{2} << 30});
  CHECK(sizes("4:64") == Sizes{4, 16, 64});
  CHECK(sizes("4:65:x2") == Sizes{4, 8, 16, 32, 64});
  CHECK(sizes("1M:3M:+1M") == Sizes{1 << 20, 2 << 20, 3 << 20});
  CHECK(sizes("8:8") == Sizes{8});
  CHECK(sizes("4,1K:4K:x2") == Sizes{4, 1024, 2048, 4096});
  CHECK(sizes("16G") == Sizes{size_bytes_max});
}

TEST_CASE("sizes: what is none") {
  const std::string no_size = " is not a size such as 4, 64K, 1M or 2G, from 1 to 16 GiB";
  for (const std::string text : {"", "K", "0", "-4", "4B", "1.5M", "17G", "99999999999999999999"}) {
    CHECK(complaint(text) == "'" + text + "'" + no_size);
  }
  CHECK(complaint("4,,8") == "''" + no_size);
  CHECK(complaint("4:") == "''" + no_size);
  CHECK(complaint("8:4") == "'8:4' ends below its beginning");
  CHECK(complaint("4:8:2") == "'2' is neither a factor such as x2 nor a step such as +1M");
  CHECK(complaint("4:8:x1") == "at least 2 is needed");
  CHECK(complaint("4:8:+0") == "'0'" + no_size);
  CHECK(complaint("4:8:x2:x2").find("is not a range") != std::string::npos);
  CHECK(complaint("1:1G:+1") == "'1:1G:+1' makes more than 256 sizes");
}

TEST_CASE("sizes as text") {
  CHECK(size_text(4) == "4");
  CHECK(size_text(1024) == "1 KiB");
  CHECK(size_text(1025) == "1025");
  CHECK(size_text(std::size_t{3} << 30) == "3 GiB");
}
