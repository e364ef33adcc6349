#include "runtime/world/children.hpp"

#include "runtime/base/bytes.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dlaunch {
namespace {

/// How often a child that cannot be polled is examined.
constexpr auto look_interval = std::chrono::milliseconds(5);
/// The longest text: less than a pipe takes at once, so that a child never waits for its parent to
/// read.
constexpr std::size_t report_bytes_max = 4000;

/// In the child: writes for the parent what ended it.
void write_report(int fd, int code, std::string_view text) {
  Bytes report;
  ByteWriter writer(report);
  writer.integer(static_cast<std::int32_t>(code));
  writer.raw(as_bytes(text.substr(0, report_bytes_max)));
  // If this fails, the parent has only the exit code.
  static_cast<void>(!::write(fd, report.data(), report.size()));
}

int run_guarded(const std::function<int()>& program, int report) {
  try {
    return program();
  } catch (const Error& error) {
    write_report(report, static_cast<int>(error.errc()), error.what());
  } catch (const std::exception& error) {
    write_report(report, 0, error.what());
  } catch (...) {
    write_report(report, 0, "an exception without a text");
  }
  return 1;
}

void read_report(int fd, ChildEnd& end) {
  std::array<std::byte, report_bytes_max + sizeof(std::int32_t)> buffer;
  const auto size = ::read(fd, buffer.data(), buffer.size());
  if (size <= 0) return;
  ByteReader reader(BytesView(buffer).first(static_cast<std::size_t>(size)));
  const auto code = reader.integer<std::int32_t>();
  if (code != 0) end.errc = static_cast<Errc>(code);
  end.text = as_text(reader.raw(reader.left()));
}

}  // namespace

std::string ChildEnd::cause() const {
  if (signal != 0) return "killed by " + signal_name(signal);
  if (!text.empty()) return "failed: " + text;
  return "exited with " + std::to_string(exit_code);
}

Children::~Children() {
  signal_all(SIGKILL);
  for (Child& child : living_) reap(child, true);
}

void Children::start(int rank, const std::function<int()>& program) {
  int pipe_ends[2] = {-1, -1};
  if (::pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(Errc::internal, "cannot open a pipe: " + errno_text(errno));
  }
  unique_fd read_end(pipe_ends[0]), write_end(pipe_ends[1]);
  // Text that stdio has buffered must be printed once, not once by each process.
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0)
    throw Error(Errc::internal,
                "cannot fork rank " + std::to_string(rank) + ": " + errno_text(errno));
  if (pid == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // The parent ended before the signal was requested.
    for (Child& sibling : living_) {
      sibling.pidfd.reset();
      sibling.report.reset();
    }
    read_end.reset();
    const int code = run_guarded(program, write_end.get());
    std::fflush(nullptr);
    ::_exit(code);
  }
  ::setpgid(pid, pid);  // Parent and child both do it: the second fails harmlessly.
  unique_fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  living_.push_back({rank, pid, std::move(pidfd), std::move(read_end)});
}

std::optional<ChildEnd> Children::reap(Child& child, bool block) {
  siginfo_t info{};
  const int options = WEXITED | WNOWAIT | (block ? 0 : WNOHANG);
  int rc = 0;
  do {
    rc = ::waitid(P_PID, static_cast<id_t>(child.pid), &info, options);
  } while (rc != 0 && errno == EINTR);
  ChildEnd end;
  end.rank = child.rank;
  end.pid = child.pid;
  if (rc == 0 && info.si_pid == 0) return std::nullopt;
  if (rc == 0) {
    // Until it is reaped, its number and its group's cannot become another process's.
    ::kill(-child.pid, SIGKILL);
    ::waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED);
    if (info.si_code == CLD_EXITED) {
      end.exit_code = info.si_status;
    } else {
      end.signal = info.si_status;
    }
    read_report(child.report.get(), end);
  } else {
    end.text = "nobody knows how it ended: SIGCHLD is ignored, or others reap our children";
  }
  return end;
}

std::vector<ChildEnd> Children::wait(Clock::time_point deadline) {
  std::vector<ChildEnd> ended;
  for (;;) {
    std::vector<pollfd> polled;
    bool all = true;
    for (Child& child : living_) {
      if (child.pidfd) polled.push_back({child.pidfd.get(), POLLIN, 0});
      all = all && child.pidfd;
    }
    std::erase_if(living_, [&](Child& child) {
      auto end = reap(child, false);
      if (end) ended.push_back(std::move(*end));
      return end.has_value();
    });
    if (!ended.empty() || living_.empty() || Clock::now() >= deadline) return ended;
    const auto until = all ? deadline : std::min(deadline, Clock::now() + look_interval);
    ::poll(polled.data(), polled.size(), poll_timeout_ms(until));
  }
}

void Children::signal_all(int signal) {
  for (const Child& child : living_) ::kill(-child.pid, signal);
}

}  // namespace dlaunch
