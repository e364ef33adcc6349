#include "rendezvous/daemon/state_commands.hpp"

#include "rendezvous/daemon/open_journal.hpp"
#include "rendezvous/state/etcd/etcd_place.hpp"
#include "rendezvous/state/sqlite_place.hpp"
#include "rendezvous/state/state_file.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/options.hpp"

#include <algorithm>
#include <array>
#include <iterator>

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

/// Makes a copy that exists as a whole or not at all. Its unfinished part has a name that no other
/// command and no user has given.
StateContents copy(const std::string& from, const std::string& to) {
  StateFile file = StateFile::open_existing(from);
  StateContents contents = file.load();
  const auto copying = file.copy_to(to, to + ".part-" + random_hex(16));
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

using Words = std::vector<std::string>;

/// A command's words behind its name, and its function.
struct StateCommand {
  std::string_view name;
  std::string_view operands;
  std::size_t count;
  std::string_view help;
  std::string (*run)(const Words& words);
};
constexpr StateCommand commands[] = {
    {"check", "FILE", 1, "Reads all of a state file, or of etcd:URL, and says whether it is good.",
     [](const Words& words) { return check(words[0]); }},
    {"backup", "FILE TO", 2, "Copies a state file that no dlaunchd uses.",
     [](const Words& words) { return backup(words[0], words[1]); }},
    {"restore", "FROM FILE", 2, "Makes a state file of a copy.",
     [](const Words& words) { return restore(words[0], words[1]); }},
};

constexpr auto word_rows = std::to_array<OptionRow<Words>>(
    {{{"help", 'h', "", "", "Options", {}, "Print this."}, nullptr}});

OptionTable options_of(const StateCommand& command) {
  const std::string program = "dlaunchd " + std::string(command.name);
  return {program,
          "Usage: " + program + " " + std::string(command.operands) + "\n\n" +
              std::string(command.help) + "\n",
          word_rows};
}

}  // namespace

bool has_sqlite() { return true; }

std::unique_ptr<StatePlace> open_state_file(const std::string& path) {
  Reserve::require_possible(path);
  return std::make_unique<SqlitePlace>(StateFile::open(path));
}

std::optional<int> run_state_command(std::span<const std::string> arguments) {
  if (arguments.empty()) return std::nullopt;
  const auto* const command = std::ranges::find(commands, arguments.front(), &StateCommand::name);
  if (command == std::end(commands)) return std::nullopt;
  const OptionTable options = options_of(*command);
  Words words;
  auto stop =
      GivenOptions(options).take_arguments(arguments.subspan(1), {.most = command->count}, words);
  if (!stop && words.size() < command->count) {
    stop = options.refuse(exit_code::usage, "a word is missing: " + options.program() + " " +
                                                std::string(command->operands));
  }
  if (stop) return say_and_exit_with(stop->code, stop->text);
  // For nobody else to read, as what is copied.
  ::umask(S_IRWXG | S_IRWXO);
  try {
    return say_and_exit_with(0, "dlaunchd: " + command->run(words) + "\n");
  } catch (const Error& error) {
    const bool passes = error.errc() == Errc::unreachable;
    return say_and_exit_with(passes ? exit_code::unreachable : exit_code::configuration,
                             std::string("dlaunchd: ") + error.what() + "\n");
  }
}

}  // namespace dlaunch::rendezvous
