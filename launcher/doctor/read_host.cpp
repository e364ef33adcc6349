#include "launcher/doctor/read_host.hpp"

#include "launcher/machine/core_file.hpp"
#include "launcher/machine/machine.hpp"
#include "launcher/machine/reachable.hpp"
#include "launcher/scheduler/scheduler.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/text/values.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include <dlfcn.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dlaunch::launcher::doctor {
namespace {

/// A host with many containers has as many bridges.
constexpr std::size_t interfaces_max = 64;
constexpr auto loopback_patience = std::chrono::seconds(2);

std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  const std::string word = first_word(path);
  std::uint64_t number = 0;
  const auto read = std::from_chars(word.data(), word.data() + word.size(), number);
  if (word.empty() || read.ec != std::errc()) return std::nullopt;
  return number;
}

void read_name(HostFacts& facts) {
  try {
    for (const auto& address : resolve(facts.hostname, 0)) {
      const std::string host = address.host();
      if (std::ranges::count(facts.addresses, host) == 0) facts.addresses.push_back(host);
      if (facts.addresses.size() > 1) continue;
      std::array<char, NI_MAXHOST> name{};
      const int error =
          ::getnameinfo(reinterpret_cast<const sockaddr*>(&address.storage), address.size,
                        name.data(), name.size(), nullptr, 0, NI_NAMEREQD);
      if (error == 0) facts.reverse_name = name.data();
    }
  } catch (const Error& error) {
    facts.lookup_error = error.what();
  }
}

void read_interfaces(HostFacts& facts) {
  try {
    for (const auto& [name, address] : interfaces_up()) {
      if (facts.interfaces.size() >= interfaces_max) return;
      const auto mtu = number_in("/sys/class/net/" + name + "/mtu");
      facts.interfaces.push_back({.name = name,
                                  .address = address.host(),
                                  .mtu = static_cast<int>(mtu.value_or(0)),
                                  .loopback = address.is_loopback()});
    }
  } catch (const Error&) {
    // The interfaces stay unknown.
  }
}

void read_loopback(HostFacts& facts) {
  try {
    const unique_fd listening = listen_tcp(resolve("127.0.0.1", 0).front());
    connect_tcp(local_address(listening.get()), Clock::now() + loopback_patience);
  } catch (const Error& error) {
    facts.loopback_error = error.what();
  }
}

Limit limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return {};
  const auto value = [](rlim_t said) {
    return said == RLIM_INFINITY ? std::nullopt : std::optional<std::uint64_t>(said);
  };
  return {value(limit.rlim_cur), value(limit.rlim_max)};
}

/// The least limit of our cgroup and of those above it, in either version of cgroups.
std::optional<std::uint64_t> memory_limit() {
  std::optional<std::uint64_t> least;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto fields = split(line, ':');
    if (fields.size() < 3) continue;
    const bool version_2 = fields[0] == "0";
    if (!version_2 && fields[1] != "memory") continue;
    std::string path(fields[2]);
    for (;;) {
      const auto limit = version_2
                             ? number_in("/sys/fs/cgroup" + path + "/memory.max")
                             : number_in("/sys/fs/cgroup/memory" + path + "/memory.limit_in_bytes");
      if (limit && (!least || *limit < *least)) least = limit;
      const auto slash = path.rfind('/');
      if (slash == std::string::npos || path.size() < 2) break;
      path.resize(slash);
    }
  }
  return least;
}

/// Reads a waiting child's memory, as a rank reads another rank's message.
void read_child(HostFacts& facts) {
  static volatile int word = 0;
  std::array<int, 2> hold{};
  if (::pipe(hold.data()) != 0) return;
  word = 1;
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(hold[1]);
    char end = 0;
    const auto got = ::read(hold[0], &end, 1);
    ::_exit(got == 0 ? 0 : 1);
  }
  ::close(hold[0]);
  int seen = 0;
  iovec local{&seen, sizeof seen};
  iovec remote{const_cast<int*>(&word), sizeof seen};
  if (child > 0 && ::process_vm_readv(child, &local, 1, &remote, 1, 0) != sizeof seen) {
    facts.reads_processes = false;
    facts.read_error = errno_text(errno);
  }
  ::close(hold[1]);
  if (child > 0) ::waitpid(child, nullptr, 0);
}

bool has_nccl() {
  const char* own = std::getenv("DLAUNCH_NCCL_LIBRARY");
  void* library = ::dlopen(own != nullptr && *own != 0 ? own : "libnccl.so.2", RTLD_LAZY);
  if (library == nullptr) return false;
  ::dlclose(library);
  return true;
}

std::optional<bool> is_synchronised() {
  timex state{};
  const int answer = ::adjtimex(&state);
  if (answer < 0) return std::nullopt;
  return answer != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
}

/// The names of the variables that dlaunch, or a program's MPI, obeys.
std::vector<std::string> variables_that_count(std::span<const std::string> environment) {
  constexpr std::array<std::string_view, 6> prefixes = {"DLAUNCH_", "PET_",  "PMI_",
                                                        "PMIX_",    "OMPI_", "SLURM_"};
  std::vector<std::string> names;
  for (const auto& variable : environment) {
    const std::string_view name = std::string_view(variable).substr(0, variable.find('='));
    if (std::ranges::any_of(prefixes, [&](auto prefix) { return name.starts_with(prefix); })) {
      names.emplace_back(name);
    }
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

HostFacts read_host(std::span<const std::string> environment) {
  HostFacts facts;
  const Machine machine = read_machine();
  facts.hostname = machine.hostname;
  facts.usable_cores = machine.usable_cores;
  facts.cores_reason = machine.cores_reason;
  facts.gpus = machine.gpus;
  facts.online_cores = std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  read_name(facts);
  read_interfaces(facts);
  read_loopback(facts);
  struct statvfs space {};
  if (::statvfs("/dev/shm", &space) == 0) {
    facts.shared_memory = {space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize};
  }
  facts.files = limit_of(RLIMIT_NOFILE);
  facts.processes = limit_of(RLIMIT_NPROC);
  facts.locked_memory = limit_of(RLIMIT_MEMLOCK);
  facts.core = limit_of(RLIMIT_CORE);
  facts.core_pattern = read_core_rule().pattern;
  facts.is_root = ::geteuid() == 0;
  std::error_code none;
  facts.has_infiniband = std::filesystem::exists("/sys/class/infiniband", none) &&
                         !std::filesystem::is_empty("/sys/class/infiniband", none);
  facts.memory_limit_bytes = memory_limit();
  facts.memory_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  read_child(facts);
  facts.has_nccl = has_nccl();
  facts.clock_synchronised = is_synchronised();
  if (const auto place = scheduler_place(environment, read_whole_file)) {
    facts.scheduler = place->scheduler;
  }
  facts.variables = variables_that_count(environment);
  facts.protocol_version = wire::version;
  return facts;
}

}  // namespace dlaunch::launcher::doctor
