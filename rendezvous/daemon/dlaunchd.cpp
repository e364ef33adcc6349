#include "rendezvous/access/keyring.hpp"
#include "rendezvous/access/socket_file.hpp"
#include "rendezvous/daemon/config.hpp"
#include "rendezvous/daemon/daemon.hpp"
#include "rendezvous/daemon/log.hpp"
#include "rendezvous/daemon/open_journal.hpp"
#include "rendezvous/daemon/process_figures.hpp"
#include "rendezvous/daemon/state_commands.hpp"
#include "rendezvous/daemon/systemd.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/secret/secrets.hpp"
#include "runtime/base/text/values.hpp"

#include <dlaunch/error.hpp>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <unistd.h>

namespace {

using namespace dlaunch;
using namespace dlaunch::rendezvous;

std::optional<std::string> variable(const char* name) {
  const char* value = ::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

int fail(Log& log, int code, const std::string& sentence) {
  log.error(sentence);
  return code;
}

/// The name under which the unit's LoadCredential= puts the secret.
constexpr const char* credential = "dlaunchd.secret";

/// Looks up what a key names; a failure says where that was written.
template <class Reader>
auto look_up(const Config& config, const char* key, const std::string& path, Reader reader) {
  try {
    return reader(path);
  } catch (const Error& error) {
    throw Error(error.errc(), config.given.as_written(key) + ": " + error.what());
  }
}

/// The nodes' secrets: from the file that is configured, else among the credentials, where they are
/// there.
std::vector<Secret> find_node_secrets(const Config& config) {
  if (!config.secret_file.empty()) {
    return look_up(config, "secret-file", config.secret_file, read_secrets_file);
  }
  const auto directory = variable("CREDENTIALS_DIRECTORY");
  if (!directory || ::access((*directory + "/" + credential).c_str(), F_OK) != 0) return {};
  return read_secrets_credential(credential, directory->c_str());
}

/// The secrets of all roles, the nodes' first.
std::vector<Granted> find_secrets(const Config& config) {
  std::vector<Granted> granted;
  const auto grant = [&](store::Role role, const std::vector<Secret>& secrets) {
    for (const Secret& secret : secrets) granted.push_back({secret, role});
  };
  grant(store::Role::node, find_node_secrets(config));
  const bool nodes = !granted.empty();
  if (!config.tool_secret_file.empty()) {
    grant(store::Role::tool,
          look_up(config, "tool-secret-file", config.tool_secret_file, read_secrets_file));
  }
  if (!config.read_only_secret_file.empty()) {
    grant(store::Role::read_only, look_up(config, "read-only-secret-file",
                                          config.read_only_secret_file, read_secrets_file));
  }
  if (!nodes && !granted.empty()) {
    throw Error(Errc::misuse,
                "there are secrets for other roles, and none for nodes: set secret-file, too");
  }
  for (const auto& [secret, role] : granted) {
    if (!secret.only_job()) continue;
    throw Error(Errc::misuse, "this is the key of the job " + in_quotes(*secret.only_job()) +
                                  " alone; dlaunchd needs the master key it was derived from");
  }
  return granted;
}

/// The operators, from the same kinds of places. Null: there are none.
std::shared_ptr<const Operators> find_operators(const Config& config) {
  if (!config.http_token_file.empty()) {
    return std::make_shared<const Operators>(
        look_up(config, "http-token-file", config.http_token_file, read_operators_file));
  }
  const auto directory = variable("CREDENTIALS_DIRECTORY");
  const std::string path = directory.value_or("") + "/dlaunchd.operators";
  if (!directory || ::access(path.c_str(), F_OK) != 0) return nullptr;
  return std::make_shared<const Operators>(read_operators_credential(path));
}

/// The start makes the state file, and no folder for it. Where only the daemon's own user may look,
/// nothing is known.
void check_state_folder(const Config& config) {
  namespace fs = std::filesystem;
  if (!config.state.starts_with(sqlite_state)) return;
  const auto folder = fs::path(config.state.substr(sqlite_state.size())).parent_path();
  std::error_code unknown;
  const auto kind = folder.empty() ? fs::file_type::directory : fs::status(folder, unknown).type();
  if (kind == fs::file_type::directory || kind == fs::file_type::none) return;
  throw Error(Errc::misuse, config.given.as_written("state") + ": there is no folder " +
                                name_in_quotes(folder.string()));
}

/// What the start refuses although each value is good by itself: --check refuses it as well. Throws
/// Error.
void check_start(const DaemonTask& task) {
  const Config& config = task.config;
  for (const auto& no : {exposure(config, !task.keyring.empty()), doubled_address(config)}) {
    if (no) throw Error(Errc::misuse, *no);
  }
  if (!config.socket_group.empty()) {
    look_up(config, "socket-group", config.socket_group, group_of);
  }
  // A file may be checked where its folder is not, as that of another host or of a container.
  if (!config.check) check_state_folder(config);
}

/// Chooses the state folder that the service manager has made, unless the configuration names one.
void choose_state(Config& config) {
  const auto folder = variable("STATE_DIRECTORY");
  if (!folder || !has_sqlite() || config.given.has("state")) return;
  config.state = std::string(sqlite_state) + *folder + "/state.db";
}

/// Chooses the socket in the service manager's runtime folder, at which this host's own jobs need
/// no secret.
void choose_socket(Config& config) {
  const auto folders = variable("RUNTIME_DIRECTORY");
  if (!folders || config.given.has("listen")) return;
  ListenAt& socket = config.listen.emplace_back();
  socket.path = folders->substr(0, folders->find(':')) + "/dlaunchd.sock";
}

/// `dlaunchd job-key ID [options]`: prints the key of one job, so that its agents need no master
/// key.
int print_job_key(std::span<const std::string> arguments) {
  auto parsed = read_config(arguments, read_whole_file, 1);
  if (const auto* exit = std::get_if<EarlyExit>(&parsed))
    return say_and_exit_with(exit->code, exit->text);
  const auto& config = std::get<Config>(parsed);
  if (config.words.empty()) {
    return say_and_exit_with(exit_code::usage,
                             "dlaunchd: job-key needs the job's id: dlaunchd job-key ID\n");
  }
  const auto job = read_job_id(config.words.front());
  if (const auto* wrong = std::get_if<Complaint>(&job)) {
    return say_and_exit_with(exit_code::usage, "dlaunchd: job-key " +
                                                   name_in_quotes(config.words.front()) + ": " +
                                                   wrong->sentence + "\n");
  }
  try {
    const auto secrets = find_secrets(config);
    if (secrets.empty()) {
      return say_and_exit_with(
          exit_code::configuration,
          "dlaunchd: there is no secret to derive a key from: give --secret-file FILE\n");
    }
    const auto& id = std::get<std::string>(job);
    return say_and_exit_with(0, job_key_text(id, secrets.front().secret.job_key(id)) + "\n");
  } catch (const Error& error) {
    return say_and_exit_with(exit_code::configuration,
                             std::string("dlaunchd: ") + error.what() + "\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_descriptors(true);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // A file that may not grow is told of in a sentence.
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments.front() == "job-key") {
    return print_job_key(std::span(arguments).subspan(1));
  }
  if (const auto code = run_state_command(arguments)) return *code;
  const auto read = [&] { return read_config(arguments, read_whole_file); };
  auto parsed = read();
  if (const auto* exit = std::get_if<EarlyExit>(&parsed))
    return say_and_exit_with(exit->code, exit->text);
  DaemonTask task;
  task.config = std::get<Config>(std::move(parsed));
  choose_state(task.config);
  choose_socket(task.config);
  task.read_again = read;
  task.read_secrets = find_secrets;
  try {
    task.keyring.accept(find_secrets(task.config));
    task.operators = find_operators(task.config);
    task.read_operators = find_operators;
    check_start(task);
  } catch (const Error& error) {
    return say_and_exit_with(exit_code::configuration,
                             std::string("dlaunchd: ") + error.what() + "\n");
  }
  if (task.config.check) return say_and_exit_with(0, "dlaunchd: the configuration is good\n");

  const bool journal = is_journal(STDERR_FILENO, variable("JOURNAL_STREAM").value_or(""));
  Log log(STDERR_FILENO, std::string(journal ? journal_path : ""));
  log.set_form(task.config.log_format);
  log.set_least(task.config.log_level);
  auto sockets = take_activated_sockets(variable, ::getpid());
  if (const auto* complaint = std::get_if<Complaint>(&sockets)) {
    return fail(log, exit_code::configuration, complaint->sentence);
  }
  task.sockets = std::get<0>(std::move(sockets));
  task.notify_socket = variable("NOTIFY_SOCKET").value_or("");
  task.watchdog = watchdog_period(variable, ::getpid());
  raise_fd_limit();
  hold_signal(SIGHUP, true);
  try {
    if (task.config.state.starts_with(etcd_state)) {
      if (!task.sockets.empty()) {
        return fail(log, exit_code::configuration,
                    "with its state in etcd dlaunchd opens its ports when it leads; disable "
                    "dlaunchd.socket, and let listen name the address");
      }
      task.led = await_lead(task.config,
                            {log, task.notify_socket, task.watchdog, [&] { reload(task, log); }});
      if (!task.led) return 0;
    }
    return Daemon(std::move(task), log).run();
  } catch (const StateLost& error) {
    return fail(log, exit_code::state_lost, error.what());
  } catch (const Error& error) {
    const bool configured = error.errc() == Errc::refused || error.errc() == Errc::misuse;
    return fail(log, configured ? exit_code::configuration : exit_code::unreachable, error.what());
  } catch (const std::exception& error) {
    return fail(log, exit_code::internal, std::string("a bug in dlaunchd: ") + error.what());
  }
}
