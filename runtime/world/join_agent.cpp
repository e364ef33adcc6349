#include "runtime/base/os/socket.hpp"
#include "runtime/world/join.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace dlaunch {
namespace {

constexpr const char* control_name = "DLAUNCH_WORKER_CONTROL";
constexpr const char* agent_name = "DLAUNCH_WORKER_AGENT";

/// Why `fd` cannot be the control socket, or nullopt.
std::optional<std::string> why_not_control(int fd) {
  const int flags = ::fcntl(fd, F_GETFD);
  if (flags < 0) return "closed on the way to this process";
  // An inherited descriptor cannot have the flag: this one was opened later, or adopted before.
  if ((flags & FD_CLOEXEC) != 0) return "in use for something else";
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) return "not a socket";
  int domain = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX) {
    return "not a unix socket";
  }
  if (peer_address(fd).size == 0) return "not connected";
  return std::nullopt;
}

/// The inherited control socket, close-on-exec from now on; empty, and `why` says so, without one.
unique_fd adopt_control(const Environment& environment, std::string& why) {
  const auto found = environment.find(control_name);
  if (found == environment.end()) {
    why = std::string(control_name) + " is not set";
    return {};
  }
  const int fd = static_cast<int>(parse_number(control_name, found->second, 0, 1 << 30));
  if (const auto reason = why_not_control(fd)) {
    why = "descriptor " + std::to_string(fd) + " (" + control_name + ") is " + *reason;
    return {};
  }
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return unique_fd(fd);
}

/// Whether another way in may succeed after this error.
bool is_worth_another_try(Errc code) {
  return code == Errc::peer_lost || code == Errc::unreachable;
}

}  // namespace

std::shared_ptr<MemberLink> join_agent(const Environment& environment, Joining& joining) {
  const WorldInfo& info = joining.place.info;
  const auto agent = environment.find(agent_name);
  MemberLink::Options options;
  options.hello = hello_of(info, info.job);
  options.peer_name = "the agent";
  options.is_agent = agent != environment.end();

  std::string first;
  if (unique_fd control = adopt_control(environment, first)) {
    try {
      return std::make_shared<MemberLink>(std::move(control), options, nullptr, joining.deadline);
    } catch (const Error& error) {
      if (!is_worth_another_try(error.errc())) throw;
      first = std::string("the control socket broke: ") + error.what();
    }
  }
  std::string second;
  if (agent == environment.end()) {
    second = std::string(agent_name) + " is not set";
  } else {
    try {
      return std::make_shared<MemberLink>(connect_unix(agent->second, joining.deadline), options,
                                          nullptr, joining.deadline);
    } catch (const Error& error) {
      if (!is_worth_another_try(error.errc())) throw;
      second = error.what();
    }
  }
  throw Error(Errc::unreachable, "rank " + std::to_string(info.rank) +
                                     " cannot reach the agent that started it: " + first +
                                     ", and " + second);
}

}  // namespace dlaunch
