#include "runtime/base/program.hpp"

#include "runtime/base/exit_code.hpp"

#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <paths.h>
#include <unistd.h>

namespace dlaunch {

void fill_standard_descriptors() {
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open(_PATH_DEVNULL, O_RDWR);  // Takes the lowest free number.
  }
}

std::optional<std::string> read_whole_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int say_and_exit_with(int code, std::string_view text) {
  const int fd = code == 0 ? STDOUT_FILENO : STDERR_FILENO;
  while (!text.empty()) {
    const auto size = ::write(fd, text.data(), text.size());
    if (size <= 0) return exit_code::internal;
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  return code;
}

}  // namespace dlaunch
