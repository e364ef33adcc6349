#include "rendezvous/service/incarnation.hpp"

#include "runtime/base/os/random.hpp"

#include <algorithm>
#include <chrono>

namespace dlaunch::rendezvous {

std::uint64_t new_incarnation(std::uint64_t after) {
  constexpr int random_bits = 12;
  constexpr std::uint64_t random_mask = (std::uint64_t{1} << random_bits) - 1;
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count();
  const auto number =
      (static_cast<std::uint64_t>(ms) << random_bits) | (random_number() & random_mask);
  return std::max(number, after + 1);
}

}  // namespace dlaunch::rendezvous
