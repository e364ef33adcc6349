#include "rendezvous/config.hpp"
#include "rendezvous/daemon.hpp"
#include "rendezvous/log.hpp"
#include "rendezvous/process_figures.hpp"
#include "rendezvous/systemd.hpp"
#include "runtime/base/exit_code.hpp"

#include <dlaunch/error.hpp>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fcntl.h>
#include <paths.h>
#include <unistd.h>

namespace {

using namespace dlaunch;
using namespace dlaunch::rendezvous;

/// Descriptors of ours must not become somebody's stdin, stdout or stderr.
void fill_standard_descriptors() {
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open(_PATH_DEVNULL, O_RDWR);  // Takes the lowest free number.
  }
}

std::optional<std::string> variable(const char* name) {
  const char* value = ::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int leave(int code, std::string_view text) {
  const int fd = code == 0 ? STDOUT_FILENO : STDERR_FILENO;
  while (!text.empty()) {
    const auto size = ::write(fd, text.data(), text.size());
    if (size <= 0) return exit_code::internal;
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  return code;
}

int fail(Log& log, int code, const std::string& sentence) {
  log.error(sentence);
  return code;
}

/// What is configured is possible in this build; nullopt: it is.
std::optional<std::string> objection(const Config& config) {
  if (!config.secret_file.empty()) {
    return "secret-file = " + config.secret_file +
           ": this build does not know secrets; leave it out, and listen on loopback";
  }
  return exposure(config, false);
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto read = [&] { return read_config(arguments, read_file); };
  auto parsed = read();
  if (const auto* exit = std::get_if<Exit>(&parsed)) return leave(exit->code, exit->text);
  DaemonTask task;
  task.config = std::get<Config>(std::move(parsed));
  task.read_again = read;
  if (const auto no = objection(task.config)) {
    return leave(exit_code::configuration, "dlaunchd: " + *no + "\n");
  }
  if (task.config.check) return leave(0, "dlaunchd: the configuration is good\n");

  const bool journal = is_journal(STDERR_FILENO, variable("JOURNAL_STREAM").value_or(""));
  Log log(STDERR_FILENO, journal ? Log::Form::journal : Log::Form::plain);
  auto sockets = take_activated_sockets(variable, ::getpid());
  if (const auto* complaint = std::get_if<Complaint>(&sockets)) {
    return fail(log, exit_code::configuration, complaint->sentence);
  }
  task.sockets = std::get<0>(std::move(sockets));
  task.notify_socket = variable("NOTIFY_SOCKET").value_or("");
  task.watchdog = watchdog_period(variable, ::getpid());
  raise_fd_limit();
  try {
    return Daemon(std::move(task), log).run();
  } catch (const Error& error) {
    const bool configured = error.errc() == Errc::refused || error.errc() == Errc::misuse;
    return fail(log, configured ? exit_code::configuration : exit_code::unreachable, error.what());
  } catch (const std::exception& error) {
    return fail(log, exit_code::internal, std::string("a bug in dlaunchd: ") + error.what());
  }
}
