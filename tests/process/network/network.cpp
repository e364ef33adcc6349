#include "tests/process/network/network.hpp"

#include "runtime/base/os/unique_fd.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

using Strings = std::vector<std::string>;

/// The words before a command that runs where `holder` lives.
Strings entry(pid_t holder) {
  const std::string spaces = "/proc/" + std::to_string(holder) + "/ns/";
  return {"nsenter", "--net=" + spaces + "net", "--uts=" + spaces + "uts"};
}

/// Runs a command to its end, with `input`; throws with its words where it fails.
void run(Strings command, const std::string& input = {}) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) {
    throw std::runtime_error("no pipe");
  }
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(in[0], 0);
    ::dup2(out[1], 1);
    ::dup2(out[1], 2);
    std::vector<char*> argv;
    for (auto& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execvp(argv.front(), argv.data());
    ::_exit(127);
  }
  unique_fd to(in[1]), from(out[0]);
  ::close(in[0]);
  ::close(out[1]);
  if (::write(to.get(), input.data(), input.size()) != static_cast<ssize_t>(input.size())) {
    throw std::runtime_error(command.front() + " does not read");
  }
  to.reset();
  std::string said;
  char block[4096];
  for (ssize_t size = 0; (size = ::read(from.get(), block, sizeof block)) > 0;) {
    said.append(block, static_cast<std::size_t>(size));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (status == 0) return;
  std::string line;
  for (const auto& word : command) line += word + " ";
  throw std::runtime_error(line + "failed: " + said + " with the input: " + input);
}

void run_in(pid_t holder, const Strings& command, const std::string& input = {}) {
  Strings line = entry(holder);
  line.insert(line.end(), command.begin(), command.end());
  run(std::move(line), input);
}

/// A process that does nothing but hold a new network and a host's name, and ends with this one.
pid_t hold_namespace(const std::string& host) {
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (::getppid() != parent || ::unshare(CLONE_NEWNET | CLONE_NEWUTS) != 0 ||
        ::sethostname(host.data(), host.size()) != 0) {
      ::_exit(1);
    }
    if (::write(ready[1], "", 1) != 1) ::_exit(1);
    ::close(0);
    ::close(1);
    ::close(2);
    for (;;) ::pause();
  }
  const unique_fd from(ready[0]);
  ::close(ready[1]);
  char byte = 0;
  if (pid > 0 && ::read(from.get(), &byte, 1) == 1) return pid;
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  throw std::runtime_error("this process may not make network namespaces");
}

void let_go(pid_t holder) {
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
}

std::string port(int machine) { return "port" + std::to_string(machine); }

}  // namespace

std::optional<std::string> network_unavailable() {
  for (const char* program : {"ip", "nft", "nsenter"}) {
    try {
      run({program, program == std::string("nft") ? "-v" : "-V"});
    } catch (const std::runtime_error&) {
      return std::string(program) +
             " is missing (packages iproute2, nftables and util-linux): no network can be made";
    }
  }
  try {
    Network trial(1);
    trial.drop(0, 30);
  } catch (const std::runtime_error& error) {
    return std::string("no network can be made here (root and network namespaces are needed): ") +
           error.what();
  }
  return std::nullopt;
}

Network::Network(int machines, Family family) {
  try {
    for (int i = 0; i <= machines; ++i) holders_.push_back(hold_namespace(host(i)));
    const pid_t bridge = holders_.back();
    std::string on_bridge = "link add bridge0 type bridge\nlink set bridge0 up\n";
    for (int i = 0; i < machines; ++i) {
      const std::string holder = std::to_string(holders_[static_cast<std::size_t>(i)]);
      on_bridge += "link add " + port(i) + " type veth peer name eth0 netns " + holder + "\n";
      on_bridge += "link set " + port(i) + " master bridge0 up\n";
    }
    run_in(bridge, {"ip", "-batch", "-"}, on_bridge);
    for (int i = 0; i < machines; ++i) {
      std::string own = "link set lo up\n";
      if (family != Family::v6) own += "addr add " + address(i) + "/24 dev eth0\n";
      if (family != Family::v4) own += "addr add " + address_v6(i) + "/64 dev eth0 nodad\n";
      own += "link set eth0 up\n";
      run_in(holders_[static_cast<std::size_t>(i)], {"ip", "-batch", "-"}, own);
    }
    std::string chains = "add table bridge cut\n";
    for (int i = 0; i < machines; ++i) chains += "add chain bridge cut " + port(i) + "\n";
    chains += "add chain bridge cut forwarded { type filter hook forward priority 0; }\n";
    for (int i = 0; i < machines; ++i) {
      chains += "add rule bridge cut forwarded jump " + port(i) + "\n";
    }
    run_in(bridge, {"nft", "-f", "-"}, chains);
  } catch (...) {
    for (const pid_t holder : holders_) let_go(holder);
    throw;
  }
}

Network::~Network() {
  for (const pid_t holder : holders_) let_go(holder);
}

std::string Network::host(int machine) { return {static_cast<char>('a' + machine)}; }

std::string Network::address(int machine) const { return "10.77.0." + std::to_string(machine + 1); }

std::string Network::address_v6(int machine) const {
  return "fd77::" + std::to_string(machine + 1);
}

Strings Network::on(int machine, const Strings& command) const {
  Strings line = entry(holders_.at(static_cast<std::size_t>(machine)));
  line.insert(line.end(), command.begin(), command.end());
  return line;
}

Strings Network::on(int machine, const Strings& command, const Files& own_for_system) const {
  std::string script;
  for (const auto& [own, system] : own_for_system) {
    script += "mount --bind '" + own + "' '" + system + "' && ";
  }
  Strings line{"unshare", "--mount", "sh", "-c", script + "exec \"$@\"", "sh"};
  for (auto& word : on(machine, command)) line.push_back(std::move(word));
  return line;
}

void Network::rules(int machine, const Strings& matches) {
  std::string text = "flush chain bridge cut " + port(machine) + "\n";
  for (const auto& match : matches) {
    text += "add rule bridge cut " + port(machine) + " " + match + " drop\n";
  }
  run_in(holders_.back(), {"nft", "-f", "-"}, text);
}

void Network::cut(int machine) {
  rules(machine, {"iifname " + port(machine), "oifname " + port(machine)});
}
void Network::cut_from(int machine) { rules(machine, {"iifname " + port(machine)}); }
void Network::cut_to(int machine) { rules(machine, {"oifname " + port(machine)}); }
void Network::drop(int machine, int percent) {
  const std::string some = " numgen random mod 100 < " + std::to_string(percent);
  rules(machine, {"iifname " + port(machine) + some, "oifname " + port(machine) + some});
}
void Network::heal(int machine) { rules(machine, {}); }

void Network::shape(int machine, const std::string& rate, const std::string& burst) {
  const auto limit = [&](pid_t where, const std::string& device) {
    run_in(where, {"tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst",
                   burst, "latency", "20ms"});
  };
  limit(holders_.at(static_cast<std::size_t>(machine)), "eth0");
  limit(holders_.back(), port(machine));
}

void Network::add_dead_end(int machine) {
  const std::string own = "10.88.0." + std::to_string(machine + 1);
  run_in(holders_.at(static_cast<std::size_t>(machine)), {"ip", "-batch", "-"},
         "link add eth1 type veth peer name end1\nlink set eth1 up\nlink set end1 up\naddr add " +
             own + "/24 dev eth1\n");
}

void Network::unplug(int machine) {
  run_in(holders_.at(static_cast<std::size_t>(machine)), {"ip", "link", "del", "eth0"});
}

}  // namespace dlaunch::process_test
