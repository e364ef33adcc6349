#include "launcher/doctor/probes.hpp"

#include "launcher/process/capture.hpp"
#include "launcher/process/program.hpp"
#include "launcher/request/variables.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/values.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <dlaunch/error.hpp>

#include <array>
#include <cerrno>
#include <cstddef>

#include <paths.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace dlaunch::launcher::doctor {
namespace {

constexpr auto connect_patience = std::chrono::seconds(5);
/// A live server answers at once; one that wants TLS waits for more bytes.
constexpr auto greeting_patience = std::chrono::seconds(2);
/// Long enough for a Python on a slow file system.
constexpr auto python_patience = std::chrono::seconds(20);
constexpr std::size_t said_max = 4096;

/// The bytes that come from the descriptor until its end, `most` bytes or the deadline.
Bytes read_until(int fd, std::size_t most, Clock::time_point deadline) {
  Bytes said;
  std::array<std::byte, 512> block;
  while (said.size() < most) {
    pollfd wait{fd, POLLIN, 0};
    const int ready = ::poll(&wait, 1, poll_timeout_ms(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    const auto size = ::read(fd, block.data(), std::min(block.size(), most - said.size()));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    said.insert(said.end(), block.data(), block.data() + size);
  }
  return said;
}

/// Its version, and that of PyTorch, which is not loaded: that takes seconds.
constexpr const char* question =
    "import sys, importlib.util as u, importlib.metadata as m\n"
    "print(sys.version.split()[0])\n"
    "if u.find_spec('torch'):\n"
    "  try: print(m.version('torch'))\n"
    "  except Exception: print('of unknown version')\n";

}  // namespace

Peer probe_peer(const std::string& host, std::uint16_t port) {
  Peer peer{.name = host_port(host, port)};
  const auto deadline = Clock::now() + connect_patience;
  unique_fd fd;
  try {
    const auto addresses = resolve(host, port);
    for (std::size_t i = 0; !fd; ++i) {
      const auto begun = Clock::now();
      try {
        fd = connect_tcp(addresses.at(i), deadline);
        peer.connected_in =
            std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun);
      } catch (const Error&) {
        if (i + 1 == addresses.size()) throw;
      }
    }
  } catch (const Error& error) {
    peer.error = error.what();
    return peer;
  }
  Bytes greeting;
  wire::encode_preface(greeting);
  ::send(fd.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL);
  const Bytes said = read_until(fd.get(), wire::preface_bytes, Clock::now() + greeting_patience);
  const auto version = wire::decode_preface(said);
  peer.kind = version ? Peer::Kind::dlaunch : said.empty() ? Peer::Kind::silent : Peer::Kind::other;
  peer.version = version.value_or(0);
  return peer;
}

Python probe_python(std::span<const std::string> environment, const std::string& usual) {
  const std::string asked(lookup(environment, "PYTHON_EXEC").value_or(""));
  const std::string name = !asked.empty() ? asked : usual.empty() ? "python3" : usual;
  const auto found =
      find_program(name, std::string(lookup(environment, "PATH").value_or(_PATH_DEFPATH)));
  if (found.error != 0) return {};
  Python python{.path = found.path, .version = "", .torch = ""};
  const std::string said =
      capture({found.path, "-c", question}, {python_patience, said_max, false}).output;
  if (said.empty()) return python;
  const auto lines = split(said, '\n');
  // A program of that name that is no Python may print anything.
  const bool number = !lines[0].empty() && lines[0][0] >= '0' && lines[0][0] <= '9';
  if (!number) return python;
  python.version = clipped(lines[0]);
  if (lines.size() > 1) python.torch = clipped(lines[1]);
  return python;
}

}  // namespace dlaunch::launcher::doctor
