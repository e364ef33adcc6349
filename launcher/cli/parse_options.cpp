#include "launcher/cli/parse_options.hpp"

#include "launcher/request/meeting.hpp"
#include "launcher/request/option_table.hpp"
#include "launcher/scheduler/scheduler.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/toml.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::launcher {

namespace {

/// Its name; the launcher's main finds where it is.
constexpr std::string_view bench_program = "dlaunch-bench";

/// The value found for one option at one place.
struct Given {
  std::string value;
  Origin origin = Origin::standard;
  std::string where;
};

EarlyExit refuse(int code, std::string_view sentence) {
  return {.code = code, .text = "dlaunch: " + std::string(sentence) + "\n"};
}

/// "--nnodes 2", "PET_NNODES=2", "job.toml: nnodes = 2".
std::string as_written(const OptionEntry& entry, const Given& given) {
  const std::string value = given.value.empty() ? "''" : clipped(given.value);
  const std::string flag(entry.flag);
  switch (given.origin) {
    case Origin::dlaunch_variable:
    case Origin::pet_variable:
    case Origin::scheduler:
      return given.where + "=" + value;
    case Origin::config_file:
      return given.where + ": " + flag + " = " + value;
    case Origin::command_line:
    case Origin::standard:
      break;
  }
  return entry.argument.empty() ? "--" + flag : "--" + flag + " " + value;
}

/// Resolves one command line. Every step returns what ends it early, or nothing.
class Parser {
 public:
  using Stop = std::optional<EarlyExit>;

  Parser() : given_(option_table().size()) {}

  Stop scan(std::span<const std::string> arguments) {
    if (!arguments.empty() && arguments[0] == "bench") return scan_bench(arguments);
    std::size_t next = 0;
    if (!arguments.empty() && arguments[0] == "run") ++next;
    for (; next < arguments.size(); ++next) {
      const std::string& argument = arguments[next];
      if (argument == "--") {
        ++next;
        break;
      }
      if (argument.size() < 2 || argument[0] != '-') break;
      if (auto stop = scan_option(arguments, next)) return stop;
    }
    draft_.options.program.assign(
        arguments.begin() + static_cast<std::ptrdiff_t>(std::min(next, arguments.size())),
        arguments.end());
    return std::nullopt;
  }

  void take_variables(std::span<const std::string> environment) {
    for (const auto& line : environment) {
      const bool pet = line.starts_with("PET_");
      const auto equals = line.find('=');
      // Templates of job systems leave variables empty: those say nothing.
      if (equals == std::string::npos || equals + 1 == line.size()) continue;
      const std::string name = line.substr(0, equals);
      if (!is_flag_variable(name)) {
        note_misspelt(name);
        continue;
      }
      std::string flag = name.substr(pet ? 4 : 8);
      std::transform(flag.begin(), flag.end(), flag.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      });
      take(*find_option(flag), {.value = line.substr(equals + 1),
                                .origin = pet ? Origin::pet_variable : Origin::dlaunch_variable,
                                .where = name});
    }
  }

  Stop take_config(const FileReader& read_file) {
    const auto* entry = find_option("config");
    const auto& given = given_[index_of(*entry)];
    if (!given) return std::nullopt;
    const std::string path = given->value;
    const auto text = read_file ? read_file(path) : std::nullopt;
    if (!text) {
      return refuse(exit_code::configuration, as_written(*entry, *given) + ": cannot be read");
    }
    auto read = read_toml(*text);
    if (const auto* complaint = std::get_if<Complaint>(&read)) {
      return refuse(exit_code::configuration, path + ": " + complaint->sentence);
    }
    for (const auto& [key, value, line] : std::get<0>(read)) {
      const auto* option = find_option(key);
      if (option == nullptr || option->apply == nullptr || option == entry) {
        return refuse(exit_code::configuration, path + ": unknown key " + clipped(key) +
                                                    suggestion(key, "; did you mean ", "?"));
      }
      take(*option, {.value = value, .origin = Origin::config_file, .where = path});
    }
    return std::nullopt;
  }

  /// Takes what a job scheduler says, where nothing stronger was said.
  Stop take_scheduler(std::span<const std::string> environment, const FileReader& read_file) {
    const auto place = scheduler_place(environment, read_file);
    if (!place) return std::nullopt;
    AskedOfNodes asked;
    const auto stronger = [&](std::string_view flag) -> const Given* {
      const auto& given = given_[index_of(*find_option(flag))];
      return given && given->origin < Origin::scheduler ? &*given : nullptr;
    };
    if (const auto* given = stronger("standalone")) {
      const auto read = read_flag(given->value);
      asked.standalone = std::holds_alternative<bool>(read) && std::get<bool>(read);
    }
    const auto& nodes = given_[index_of(*find_option("nnodes"))];
    if (nodes && (stronger("nnodes") != nullptr || !place->node_count)) {
      // apply() says what is wrong with it.
      const auto read = read_nodes(nodes->value);
      if (const auto* count = std::get_if<NodesAsked>(&read)) asked.most = count->most;
    }
    asked.meeting = stronger("rdzv-endpoint") != nullptr || stronger("master-addr") != nullptr;
    draft_.options.scheduler_job = place->job_id.value;
    auto told = scheduler_settings(*place, asked);
    if (!told.refusal.empty()) return refuse(exit_code::usage, told.refusal);
    if (!told.note.empty()) draft_.options.notes.push_back(std::move(told.note));
    for (auto& setting : told.settings) {
      take(*find_option(setting.flag), {.value = std::move(setting.value),
                                        .origin = Origin::scheduler,
                                        .where = std::move(setting.where)});
    }
    return std::nullopt;
  }

  /// --device is the benchmark's own.
  bool measures_gpus() const {
    const auto& words = draft_.options.program;
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i] == "--device=cuda") return true;
      if (words[i] == "--device" && i + 1 < words.size() && words[i + 1] == "cuda") return true;
    }
    return false;
  }

  /// Takes bench's defaults where neither the user nor a scheduler says otherwise.
  void take_bench() {
    if (!draft_.options.bench) return;
    const auto standard = [&](std::string_view flag, std::string_view value) {
      take(*find_option(flag),
           {.value = std::string(value), .origin = Origin::standard, .where = ""});
    };
    standard("nproc-per-node", measures_gpus() ? "gpu" : "cpu");
    standard("log-line-prefix-template", "");
  }

  Stop apply() {
    for (const auto& entry : option_table()) {
      if (entry.apply == nullptr) continue;
      // The default first: it is text like any other value, and shows in --help and --dry-run.
      if (!entry.standard.empty()) entry.apply(draft_, entry.standard);
      const auto& given = given_[index_of(entry)];
      auto& options = draft_.options;
      if (!given) {
        options.settings.push_back(
            {std::string(entry.flag), std::string(entry.standard), Origin::standard, ""});
        continue;
      }
      if (const auto complaint = entry.apply(draft_, given->value)) {
        return refuse(
            given->origin == Origin::config_file ? exit_code::configuration : exit_code::usage,
            as_written(entry, *given) + ": " + complaint->sentence);
      }
      options.settings.push_back(
          {std::string(entry.flag), given->value, given->origin, given->where});
      if (!entry.no_effect.empty()) {
        options.notes.push_back(as_written(entry, *given) +
                                " has no effect: " + std::string(entry.no_effect) + ".");
      }
    }
    return std::nullopt;
  }

  Stop check_program() const {
    const auto& options = draft_.options;
    if (options.program.empty()) {
      return refuse(exit_code::usage,
                    options.module ? "-m needs the name of a module: dlaunch -m MODULE [args...]"
                                   : "no program given: dlaunch [options] [--] program [args...]; "
                                     "dlaunch --help lists the options");
    }
    if (options.program.front().empty()) {
      return refuse(exit_code::usage, "the program's name is empty");
    }
    if (options.module && options.no_python) {
      return refuse(exit_code::usage,
                    "-m and --no-python exclude each other: a module needs the interpreter");
    }
    if (options.module && options.run_path) {
      return refuse(exit_code::usage,
                    "-m and --run-path exclude each other: the program is a module or a path");
    }
    return std::nullopt;
  }

  Stop check_meeting() {
    auto& options = draft_.options;
    options.master_addr_given = given_[index_of(*find_option("master-addr"))].has_value();
    auto decided = meeting_of(options);
    if (const auto* problem = std::get_if<MeetingProblem>(&decided)) {
      const auto& entry = *find_option(problem->flag);
      const auto& given = given_[index_of(entry)];
      return refuse(exit_code::usage,
                    (given ? as_written(entry, *given) : "--" + std::string(entry.flag)) + ": " +
                        problem->sentence);
    }
    options.meeting = std::get<Meeting>(std::move(decided));
    if (options.standalone) stand_alone();
    return std::nullopt;
  }

  Options finish() {
    auto& options = draft_.options;
    const auto& port = given_[index_of(*find_option("master-port"))];
    options.master_port_insisted = port.has_value() && options.master_port != 0;
    if (options.standalone && !port) options.master_port = 0;
    if (options.meeting.kind == Meeting::Kind::one_node) {
      note_unused("master-addr", "on one node the workers meet at 127.0.0.1",
                  is_loopback_name(options.master_addr));
      note_unused("rdzv-conf", "there is nothing to agree on with one node");
      note_unused("local-addr", "no other node has to reach this one");
      note_unused("iface", "no other node has to reach this one");
      for (const auto* flag : {"secret-file", "secret-credential", "secret-fd"}) {
        note_unused(flag, "no other node takes part");
      }
      options.master_addr = "127.0.0.1";
    }
    return std::move(options);
  }

 private:
  static std::size_t index_of(const OptionEntry& entry) {
    return static_cast<std::size_t>(&entry - option_table().data());
  }

  static std::string suggestion(std::string_view flag, std::string_view before,
                                std::string_view after) {
    const std::string nearest = nearest_option(flag);
    return nearest.empty() ? "" : std::string(before) + nearest + std::string(after);
  }

  /// Keeps the strongest; on the command line the last of equals counts.
  void take(const OptionEntry& entry, Given given) {
    auto& kept = given_[index_of(entry)];
    const bool stronger = !kept || given.origin < kept->origin ||
                          (given.origin == kept->origin && given.origin == Origin::command_line);
    if (stronger) kept = std::move(given);
  }

  /// `bench`: what the launcher does not know goes to the benchmark, which refuses what it does not
  /// know either.
  Stop scan_bench(std::span<const std::string> arguments) {
    auto& options = draft_.options;
    options.bench = true;
    options.program = {std::string(bench_program)};
    for (std::size_t next = 1; next < arguments.size(); ++next) {
      const std::string_view argument = arguments[next];
      const OptionEntry* entry = nullptr;
      if (argument.starts_with("--")) {
        entry = find_option(argument.substr(2, argument.find('=') - 2));
      } else if (argument.size() > 1 && argument[0] == '-') {
        entry = find_option(argument[1]);
      }
      if (entry == nullptr || entry->flag == "help") {
        options.program.push_back(arguments[next]);
      } else if (entry->section == Section::program) {
        return refuse(exit_code::usage, "--" + std::string(entry->flag) +
                                            ": bench runs a program of its own, without Python");
      } else if (auto stop = scan_option(arguments, next)) {
        return stop;
      }
    }
    return std::nullopt;
  }

  /// The option at `next`, which is moved on to the option's value where that stands apart.
  Stop scan_option(std::span<const std::string> arguments, std::size_t& next) {
    const std::string_view argument = arguments[next];
    const bool is_long = argument.starts_with("--");
    const auto equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    std::optional<std::string> attached;
    const OptionEntry* entry = nullptr;
    if (is_long) {
      entry = find_option(name.substr(2));
      if (equals != std::string_view::npos) attached = argument.substr(equals + 1);
    } else {
      entry = find_option(argument[1]);
      const bool takes_value = entry != nullptr && !entry->argument.empty();
      // Letters are not combined, and "-tee" is no -t.
      if (argument.size() > 2 && (!takes_value || find_option(name.substr(1)))) entry = nullptr;
      if (argument.size() > 2) attached = argument.substr(argument[2] == '=' ? 3 : 2);
    }
    if (entry == nullptr) {
      const std::string_view bare = name.substr(is_long ? 2 : 1);
      return refuse(exit_code::usage,
                    "unknown option " + clipped(name) + suggestion(bare, "; did you mean ", "?"));
    }
    if (entry->flag == "help") return EarlyExit{.code = 0, .text = help_text()};
    if (entry->flag == "version")
      return EarlyExit{.code = 0, .text = "dlaunch " DLAUNCH_VERSION "\n"};
    if (entry->argument.empty()) {
      take(*entry, {.value = attached.value_or("1"), .origin = Origin::command_line, .where = ""});
      return std::nullopt;
    }
    if (!attached) {
      if (auto stop = check_value_follows(*entry, arguments, next)) return stop;
      attached = arguments[++next];
    }
    take(*entry, {.value = *attached, .origin = Origin::command_line, .where = ""});
    return std::nullopt;
  }

  static Stop check_value_follows(const OptionEntry& entry, std::span<const std::string> arguments,
                                  std::size_t next) {
    const std::string needs =
        "--" + std::string(entry.flag) + " needs a value: " + std::string(entry.argument);
    if (next + 1 == arguments.size()) return refuse(exit_code::usage, needs);
    const std::string_view value = arguments[next + 1];
    const bool is_option =
        value == "--" ||
        (value.starts_with("--") && find_option(value.substr(2, value.find('=') - 2)) != nullptr);
    if (!is_option) return std::nullopt;
    return refuse(exit_code::usage, needs + "; it is followed by the option " + clipped(value));
  }

  /// A variable of the user's own may begin likewise, so this is no refusal.
  void note_misspelt(std::string_view name) {
    const std::string meant = nearest_variable(name);
    if (meant.empty()) return;
    draft_.options.notes.push_back(std::string(name) + " has no effect; did you mean " + meant +
                                   "?");
  }

  /// Says that an option, where it was given, changes nothing.
  void note_unused(std::string_view flag, std::string_view why, bool harmless = false) {
    const auto& entry = *find_option(flag);
    const auto& given = given_[index_of(entry)];
    if (!given || harmless) return;
    draft_.options.notes.push_back(as_written(entry, *given) +
                                   " has no effect: " + std::string(why) + ".");
  }

  void stand_alone() {
    auto& options = draft_.options;
    for (const std::string_view flag : {"rdzv-id", "rdzv-endpoint", "rdzv-backend"}) {
      note_unused(flag, "--standalone sets it");
    }
    options.job_id.reset();
    options.rdzv_endpoint.clear();
  }

  Draft draft_;
  std::vector<std::optional<Given>> given_;  ///< By the table's index.
};

}  // namespace

std::variant<Options, EarlyExit> parse_options(std::span<const std::string> arguments,
                                               std::span<const std::string> environment,
                                               const FileReader& read_file) {
  Parser parser;
  if (auto stop = parser.scan(arguments)) return *stop;
  parser.take_variables(environment);
  if (auto stop = parser.take_config(read_file)) return *stop;
  if (auto stop = parser.take_scheduler(environment, read_file)) return *stop;
  parser.take_bench();
  if (auto stop = parser.apply()) return *stop;
  if (auto stop = parser.check_program()) return *stop;
  if (auto stop = parser.check_meeting()) return *stop;
  return parser.finish();
}

}  // namespace dlaunch::launcher
