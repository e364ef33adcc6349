#include "rendezvous/daemon/state_commands.hpp"

#include "rendezvous/daemon/open_journal.hpp"
#include "rendezvous/state/etcd/etcd_place.hpp"
#include "rendezvous/state/sqlite_place.hpp"
#include "rendezvous/state/state_file.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/phrases.hpp"

#include <sys/stat.h>

namespace dlaunch::rendezvous {
namespace {

/// "2 jobs, 1 namespace with 30 keys".
std::string summary(const StateContents& contents) {
  long jobs = 0, keys = 0;
  for (const auto& job : contents.jobs) jobs += job.job.empty() ? 0 : 1;
  for (const auto& [name, space] : contents.spaces) {
    keys += static_cast<long>(space.contents.keys.size());
  }
  return plural(jobs, "job") + ", " +
         plural(static_cast<long>(contents.spaces.size()), "namespace") + " with " +
         plural(keys, "key");
}

/// Makes a copy that exists as a whole or not at all.
StateContents copy(const std::string& from, const std::string& to) {
  StateFile file = StateFile::open_existing(from);
  StateContents contents = file.load();
  const auto copying = file.copy_to(to, to + ".part");
  while (!copying->step()) continue;
  return contents;
}

std::string check_etcd(const std::string& urls) {
  const auto read = etcd::read_servers(urls);
  if (const auto* wrong = std::get_if<Complaint>(&read)) {
    throw Error(Errc::misuse, wrong->sentence);
  }
  const auto& servers = std::get<etcd::Servers>(read);
  const std::string what = summary(etcd::EtcdPlace::read(servers));
  return "the state in " + etcd::to_string(servers) + " is good: " + what;
}

std::string check(const std::string& path) {
  if (path.starts_with(etcd_state)) return check_etcd(path.substr(etcd_state.size()));
  return name_in_quotes(path) + " is good: " + summary(StateFile::open_existing(path).load());
}

std::string backup(const std::string& path, const std::string& to) {
  return "saved in " + name_in_quotes(to) + ": " + summary(copy(path, to));
}

std::string restore(const std::string& from, const std::string& path) {
  const std::string what = summary(copy(from, path));
  StateFile::open_existing(path).forget_memory();
  return "restored in " + name_in_quotes(path) + ": " + what;
}

}  // namespace

bool has_sqlite() { return true; }

std::unique_ptr<StatePlace> open_state_file(const std::string& path) {
  return std::make_unique<SqlitePlace>(StateFile::open(path));
}

std::optional<int> run_state_command(std::span<const std::string> arguments) {
  if (arguments.empty()) return std::nullopt;
  const std::string& command = arguments.front();
  const bool checks = command == "check", saves = command == "backup";
  if (!checks && !saves && command != "restore") return std::nullopt;
  if (arguments.size() != (checks ? 2U : 3U)) {
    return say_and_exit_with(exit_code::usage,
                             checks  ? "dlaunchd: check needs a file: dlaunchd check FILE\n"
                             : saves ? "dlaunchd: backup needs two files: dlaunchd backup FILE TO\n"
                                     : "dlaunchd: restore needs two files: dlaunchd restore FROM "
                                       "FILE\n");
  }
  // Readable by nobody else, like the original.
  ::umask(S_IRWXG | S_IRWXO);
  try {
    const std::string& first = arguments[1];
    const std::string said = checks  ? check(first)
                             : saves ? backup(first, arguments[2])
                                     : restore(first, arguments[2]);
    return say_and_exit_with(0, "dlaunchd: " + said + "\n");
  } catch (const Error& error) {
    return say_and_exit_with(exit_code::configuration,
                             std::string("dlaunchd: ") + error.what() + "\n");
  }
}

}  // namespace dlaunch::rendezvous
