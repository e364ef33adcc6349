#include "launcher/cli/read_request.hpp"

#include "launcher/request/option_values.hpp"
#include "launcher/request/resolve.hpp"
#include "launcher/scheduler/scheduler.hpp"
#include "runtime/base/exit_code.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace dlaunch::launcher {

namespace {

using Stop = std::optional<EarlyExit>;

/// --device is the benchmark's own.
bool measures_gpus(std::span<const std::string> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--device=cuda") return true;
    if (words[i] == "--device" && i + 1 < words.size() && words[i + 1] == "cuda") return true;
  }
  return false;
}

constexpr std::string_view divider = ":";

/// "\\:" is a ':' for the program, "\\\\:" is "\\:".
std::string without_escape(const std::string& word) {
  const auto backslashes = word.find_first_not_of('\\');
  const bool escaped =
      backslashes > 0 && word.substr(std::min(backslashes, word.size())) == divider;
  return escaped ? word.substr(1) : word;
}

/// Options of the whole job are refused in a part.
Stop take_part(LaterPart& part, std::span<const std::string> words, std::size_t number) {
  if (auto stop = part.options.take_arguments(words, {.end_options = true}, part.program)) {
    return of_later_part(*std::move(stop), number);
  }
  for (const Option* option : option_table().options()) {
    if (option->traits.of_part || !part.options.has(option->flag)) continue;
    return option_table().refuse(exit_code::usage,
                                 part.options.as_written(option->flag) +
                                     ": it is of the whole job; give it before the first ':'");
  }
  if (!part.program.empty()) return std::nullopt;
  return option_table().refuse(exit_code::usage,
                               "part " + std::to_string(number) + " of the line names no program");
}

/// Divides the words behind the first program's name.
Stop divide(Request& request) {
  std::vector<std::vector<std::string>> parts(1);
  for (const auto& word : request.program) {
    if (word == divider) {
      parts.emplace_back();
    } else {
      parts.back().push_back(without_escape(word));
    }
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty() && parts.size() > 1) {
      return option_table().refuse(
          exit_code::usage, "part " + std::to_string(i + 1) +
                                " of the line is empty: each ':' stands between two programs; one "
                                "that is an argument is written \\:");
    }
    if (i == 0) continue;
    if (auto stop = take_part(request.later_parts.emplace_back(), parts[i], i + 1)) return stop;
  }
  request.program = std::move(parts.front());
  return std::nullopt;
}

Stop take_line(Request& request, std::span<const std::string> arguments) {
  request.bench = !arguments.empty() && arguments[0] == "bench";
  const bool run = !arguments.empty() && arguments[0] == "run";
  const Operands operands{.end_options = !request.bench, .foreign = request.bench};
  auto stop = request.options.take_arguments(arguments.subspan(run || request.bench ? 1 : 0),
                                             operands, request.program);
  if (stop) return stop;
  if (!request.bench) return divide(request);
  for (const Option* option : option_table().options()) {
    if (option->section != program_section || !request.options.has(option->flag)) continue;
    return option_table().refuse(
        exit_code::usage,
        "--" + std::string(option->flag) + ": bench runs a program of its own, without Python");
  }
  request.options.assume("nproc-per-node", measures_gpus(request.program) ? "gpu" : "cpu");
  return std::nullopt;
}

void take_variables(Request& request, std::span<const std::string> environment) {
  for (const auto& line : environment) {
    const auto equals = line.find('=');
    // Job templates set variables that they leave empty: those count as unset.
    if (equals == std::string::npos || equals + 1 == line.size()) continue;
    const std::string name = line.substr(0, equals);
    if (const Option* option = option_of_variable(name)) {
      const bool pet = name.starts_with("PET_");
      request.options.take({.flag = option->flag,
                            .value = line.substr(equals + 1),
                            .origin = pet ? Origin::pet_variable : Origin::dlaunch_variable,
                            .where = name});
    } else if (const auto meant = nearest_variable(name); !meant.empty()) {
      // A variable of the user's own may begin likewise, so this is no refusal.
      request.notes.push_back(name + " has no effect; did you mean " + meant + "?");
    }
  }
}

Stop take_hostfile(Request& request, const FileReader& read_file) {
  if (!request.options.has("hostfile")) return std::nullopt;
  errno = 0;
  request.hostfile = read_file ? read_file(request.options.of("hostfile").value) : std::nullopt;
  if (request.hostfile) return std::nullopt;
  return request.options.refuse("hostfile", cannot_be_read(errno));
}

/// Takes a job scheduler's values for the options that nothing stronger has set.
Stop take_scheduler(Request& request, std::span<const std::string> environment,
                    const FileReader& read_file) {
  const auto place = scheduler_place(environment, read_file);
  if (!place) return std::nullopt;
  const GivenOptions& given = request.options;
  const auto stronger = [&](std::string_view flag) {
    return given.of(flag).origin < Origin::scheduler;
  };
  AskedOfNodes asked;
  if (stronger("standalone")) {
    const auto read = read_flag(given.of("standalone").value);
    asked.standalone = std::holds_alternative<bool>(read) && std::get<bool>(read);
  }
  if (stronger("nnodes") || (given.has("nnodes") && !place->node_count)) {
    // resolve() says what is wrong with it.
    const auto read = read_nodes(given.of("nnodes").value);
    if (const auto* count = std::get_if<NodesAsked>(&read)) asked.most = count->most;
  }
  asked.meeting = stronger("rdzv-endpoint") || stronger("master-addr");
  request.scheduler_job = place->job_id.value;
  auto told = scheduler_settings(*place, asked);
  if (!told.refusal.empty()) return option_table().refuse(exit_code::usage, told.refusal);
  if (!told.note.empty()) request.notes.push_back(std::move(told.note));
  for (auto& setting : told.settings) request.options.take(std::move(setting));
  return std::nullopt;
}

void take_deadline(Request& request, std::span<const std::string> environment) {
  const Told told = scheduler_deadline(environment);
  if (told.value.empty()) return;
  for (const std::string_view flag : {"deadline", "deadline-latest"}) {
    request.options.take({flag, told.value, Origin::scheduler, "Slurm: " + told.from});
  }
}

}  // namespace

std::variant<Request, EarlyExit> read_request(std::span<const std::string> arguments,
                                              std::span<const std::string> environment,
                                              const FileReader& read_file) {
  Request request;
  if (auto stop = take_line(request, arguments)) return *stop;
  take_variables(request, environment);
  if (auto stop = request.options.take_file(read_file)) return *stop;
  if (auto stop = take_hostfile(request, read_file)) return *stop;
  take_deadline(request, environment);
  // A user who names the hosts needs no scheduler.
  const bool named = request.options.has("hosts") || request.options.has("hostfile");
  if (named) return request;
  if (auto stop = take_scheduler(request, environment, read_file)) return *stop;
  return request;
}

std::variant<JobSpec, EarlyExit> read_job(std::span<const std::string> arguments,
                                          std::span<const std::string> environment,
                                          const FileReader& read_file,
                                          const LaunchContext& context) {
  auto request = read_request(arguments, environment, read_file);
  if (auto* exit = std::get_if<EarlyExit>(&request)) return std::move(*exit);
  return resolve(std::get<Request>(request), context);
}

}  // namespace dlaunch::launcher
