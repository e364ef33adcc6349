#include "launcher/subcommands/held_launcher.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/process_stat.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <array>
#include <cerrno>
#include <optional>

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dlaunch::launcher {

HeldLauncher hold(const StatusFolder& folder, const FoundJobs::Found& found) {
  const JobEntry& entry = found.entry;
  HeldLauncher held{.name = "job " + entry.job, .process = {}, .farewell = {}};
  try {
    held.farewell = ask_for_end(folder, found.place);
  } catch (const Error&) {
    // The launcher is about to end.
  }
  held.seen = found.front > 0 && entry.front_started != 0;
  if (!held.seen) return held;
  held.name += " (pid " + std::to_string(found.front) + ")";
  held.process = unique_fd(static_cast<int>(::syscall(SYS_pidfd_open, found.front, 0)));
  if (!held.process && errno != ESRCH) held.problem = errno_text(errno);
  // Another process may have this number by now.
  const auto stat = process_stat(found.front);
  if (!held.process || !stat || stat->started != entry.front_started) held.process.reset();
  return held;
}

bool wait_until(const HeldLauncher& held, Clock::time_point deadline) {
  // The end of a launcher that we do not see shows at the socket: by its farewell, or by closing.
  const int fd = held.seen ? held.process.get() : held.farewell.get();
  if (fd < 0) return true;
  for (;;) {
    pollfd wait{fd, POLLIN, 0};
    const int ready = ::poll(&wait, 1, poll_timeout_ms(deadline));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= deadline) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

std::string how_it_ended(const HeldLauncher& held) {
  std::array<std::byte, 64> block;
  const auto size =
      held.farewell ? ::recv(held.farewell.get(), block.data(), block.size(), MSG_DONTWAIT) : 0;
  const auto farewell =
      size > 0 ? decode_farewell(BytesView(block.data(), static_cast<std::size_t>(size)))
               : std::nullopt;
  if (!farewell) return held.name + " has ended, and did not tell how\n";
  const int code = farewell->exit_code;
  std::string text = held.name + " has ended with " + std::to_string(code);
  if (code > 128) text += " (" + signal_name(code - 128) + ")";
  return text + "\n";
}

}  // namespace dlaunch::launcher
