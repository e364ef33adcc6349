#include "launcher/machine/master_port.hpp"

#include "runtime/base/os/socket.hpp"

namespace dlaunch::launcher {

MasterPort take_master_port(const MasterPortAsked& asked) {
  const auto listen_on = [&](std::uint16_t port) {
    return listen_tcp(resolve(asked.host, port).front());
  };
  MasterPort taken;
  try {
    taken.listener = listen_on(asked.port);
  } catch (const Error& error) {
    if (asked.insisted || asked.port == 0 || error.errc() != Errc::refused) throw;
    taken.listener = listen_on(0);
    taken.note = error.what();
  }
  taken.port = local_address(taken.listener.get()).port();
  if (!taken.note.empty()) {
    taken.note += "; this job uses port " + std::to_string(taken.port) +
                  " instead (--master-port insists on one, --standalone always takes a free one)";
  }
  // Nobody has connected to the port, so the worker can bind it at once.
  if (!asked.listen) taken.listener.reset();
  return taken;
}

}  // namespace dlaunch::launcher
