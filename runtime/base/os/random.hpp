#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dlaunch {

/// A random number from the kernel: nobody can guess it, and no two are equal. Never 0.
std::uint64_t random_number();
/// So many random hexadecimal digits.
std::string random_hex(std::size_t digits);

}  // namespace dlaunch
