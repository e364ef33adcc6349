#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dlaunch {

/// From the kernel: nobody can guess it, and no two are alike. Never 0.
std::uint64_t random_number();
/// So many random hexadecimal digits.
std::string random_hex(std::size_t digits);

}  // namespace dlaunch
