#include "runtime/world/member/identity.hpp"

#include <dlaunch/error.hpp>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>

#include <unistd.h>

namespace dlaunch {

namespace {

std::string boot_and_namespace(const std::string& kind) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::array<char, 64> space{};
  const std::string path = "/proc/self/ns/" + kind;
  if (::readlink(path.c_str(), space.data(), space.size() - 1) < 0) space[0] = '\0';
  return boot + "/" + space.data();
}

}  // namespace

std::string own_hostname() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data()
                                                                             : "localhost";
}

std::string machine_id() { return boot_and_namespace("pid"); }
std::string host_id() { return boot_and_namespace("net"); }

std::optional<std::uint64_t> start_time_of(std::int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The name in parentheses may hold anything, so fields are counted from its end: the state is
  // field 3, the start time field 22.
  const auto close = line.rfind(')');
  if (close == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(close + 1));
  std::string field;
  for (int number = 3; number < 22; ++number) {
    fields >> field;
    if (number == 3 && (field == "Z" || field == "X")) return std::nullopt;
  }
  std::uint64_t started = 0;
  if (!(fields >> started)) return std::nullopt;
  return started;
}

}  // namespace dlaunch
