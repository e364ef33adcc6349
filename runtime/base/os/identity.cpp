#include "runtime/base/os/identity.hpp"

#include "runtime/base/os/process_stat.hpp"

#include <dlaunch/error.hpp>

#include <array>
#include <fstream>

#include <unistd.h>

namespace dlaunch {

namespace {

std::string namespace_of(const std::string& kind) {
  std::array<char, 64> space{};
  const std::string path = "/proc/self/ns/" + kind;
  if (::readlink(path.c_str(), space.data(), space.size() - 1) < 0) space[0] = '\0';
  return space.data();
}

std::string boot_and_namespace(const std::string& kind) {
  return kernel_id() + "/" + namespace_of(kind);
}

}  // namespace

std::string own_hostname() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data()
                                                                             : "localhost";
}

std::string kernel_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return boot;
}

std::string memory_id() {
  std::string id = kernel_id();
  for (const char* kind : {"net", "pid", "user"}) {
    const std::string space = namespace_of(kind);
    if (id.empty() || space.empty()) return "";
    id += "/" + space;
  }
  return id + "/" + std::to_string(::geteuid());
}

std::string machine_id() { return boot_and_namespace("pid"); }
std::string host_id() { return boot_and_namespace("net"); }

std::optional<std::uint64_t> start_time_of(std::int64_t pid) {
  const auto stat = process_stat(pid);
  if (!stat || stat->state == 'Z' || stat->state == 'X') return std::nullopt;
  return stat->started;
}

}  // namespace dlaunch
