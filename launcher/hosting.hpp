#pragma once

#include "launcher/options.hpp"
#include "runtime/base/socket.hpp"
#include "runtime/base/unique_fd.hpp"

#include <string>
#include <variant>
#include <vector>

namespace dlaunch::launcher {

/// The rendezvous is elsewhere.
struct JoinElsewhere {};
/// It cannot be; `sentence` says why and what to do.
struct HostingProblem {
  int exit_code = 0;
  std::string sentence;
};

/// Whether this node hosts the rendezvous at the addresses its name was resolved to: by trying to
/// bind one of them, since names lie and a bind does not. A listener: it does. Never a wildcard.
std::variant<unique_fd, JoinElsewhere, HostingProblem> bind_or_join(
    const Options& options, const std::vector<Address>& addresses);

}  // namespace dlaunch::launcher
