#include "runtime/base/os/random.hpp"

#include <dlaunch/error.hpp>

#include <cerrno>
#include <system_error>

#include <sys/random.h>

namespace dlaunch {

std::uint64_t random_number() {
  for (;;) {
    std::uint64_t number = 0;
    const ssize_t size = ::getrandom(&number, sizeof number, 0);
    if (size == static_cast<ssize_t>(sizeof number) && number != 0) return number;
    if (size < 0 && errno != EINTR) {
      throw Error(Errc::internal,
                  "the kernel gives no random numbers: " + std::generic_category().message(errno));
    }
  }
}

std::string random_hex(std::size_t digits) {
  static constexpr char alphabet[] = "0123456789abcdef";
  std::string text;
  for (std::uint64_t number = 0; text.size() < digits; number >>= 4) {
    if (text.size() % 16 == 0) number = random_number();
    text += alphabet[number & 15];
  }
  return text;
}

}  // namespace dlaunch
