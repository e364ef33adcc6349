#include "launcher/remote/core/host_lines.hpp"

#include "launcher/plan/plan.hpp"
#include "launcher/request/option_table.hpp"
#include "launcher/request/shell_words.hpp"
#include "launcher/request/variables.hpp"
#include "launcher/scheduler/scheduler.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <array>

namespace dlaunch::launcher::remote {
namespace {

using Words = std::vector<std::string>;

constexpr std::size_t starts_max = 32;
constexpr std::string_view here_name = ".";
constexpr int secret_number = 3;  ///< The descriptor by which dlaunch gets it on a host.

/// Options that each host decides for itself, or that its line says in another way.
constexpr auto not_handed_on = std::to_array<std::string_view>({
    "config",  "cwd",       "dry-run",       "ends-with-stdin", "env",       "hostfile",
    "hosts",   "module",    "no-python",     "nnodes",          "node-rank", "nproc-per-node",
    "rdzv-id", "rdzv-role", "rdzv-endpoint", "run-path",        "secret-fd", "ssh",
    "stdin",
});

/// The script for sh on a host: $0 is the host, $1 the directory. The login shell, of any kind,
/// only reads the words around it.
std::string script(bool secret) {
  std::string text = secret ? "IFS= read -r secret || exit; " : "";
  text += R"(cd -- "$1" 2>/dev/null || )"
          R"({ echo "dlaunch: host $0: there is no directory $1" >&2; exit 127; }; )"
          R"(shift; exec "$@")";
  // The secret must be neither on a command line nor in the environment: others can read those.
  if (secret) text += " " + std::to_string(secret_number) + "<<END\n$secret\nEND\n";
  return text;
}

std::string option(std::string_view flag, std::string_view value) {
  return "--" + std::string(flag) + "=" + std::string(value);
}

std::string workers_text(const WorkersAsked& asked) {
  using Kind = WorkersAsked::Kind;
  switch (asked.kind) {
    case Kind::number:
      break;
    case Kind::cpu:
      return "cpu";
    case Kind::gpu:
      return "gpu";
    case Kind::automatic:
      return "auto";
  }
  return std::to_string(asked.number);
}

/// Escapes a word that is a ':', which would divide the line.
std::string escaped(const std::string& word) {
  const auto colon = word.find_first_not_of('\\');
  return colon != std::string::npos && word.substr(colon) == ":" ? "\\" + word : word;
}

/// "[::1]" for an address that has ':' itself.
std::string host_text(const HostAsked& host) {
  const bool colons = host.name.find(':') != std::string::npos;
  const std::string name = colons ? "[" + host.name + "]" : host.name;
  return host.workers ? name + ":" + std::to_string(*host.workers) : name;
}

bool was_given(const JobSpec& spec, std::string_view flag) {
  return std::ranges::any_of(spec.settings, [&](const Setting& setting) {
    return setting.flag == flag && setting.origin != Origin::standard;
  });
}

class Lines {
 public:
  Lines(const JobSpec& spec, std::span<const std::string> environment, const Here& here)
      : spec_(spec), environment_(environment), here_(here) {}

  HostStart start(std::size_t first, std::size_t count) const {
    HostStart start;
    start.host = spec_.hosts[first].name;
    start.first_node = spec_.node_rank.value_or(0) + static_cast<int>(first);
    const auto begin = spec_.hosts.begin() + static_cast<std::ptrdiff_t>(first);
    start.hosts.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
    const bool local = start.host == here_name;
    if (!local) {
      start.argv = spec_.ssh;
      start.argv.push_back(start.host);
    } else {
      start.argv = {"/bin/sh", "-c"};
    }
    start.argv.push_back(line(start));
    return start;
  }

 private:
  std::string line(const HostStart& start) const {
    Words words = {"/bin/sh", "-c", script(here_.secret), start.host, here_.directory};
    const Words variables = variables_handed_on();
    if (!variables.empty()) words.emplace_back("env");
    words.insert(words.end(), variables.begin(), variables.end());
    words.push_back(here_.launcher);
    if (spec_.bench) words.emplace_back("bench");
    add_options(words, start);
    add_place(words, start);
    const auto parts = spec_.parts();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) words.emplace_back(":");
      add_part(words, *parts[i],
               i == 0 && start.hosts.size() == 1 ? start.hosts[0].workers : std::nullopt);
    }
    return "exec " + shell_line(words);
  }

  /// dlaunch's own variables that stand for no option.
  Words variables_handed_on() const {
    Words result;
    for (const auto& line : environment_) {
      const auto name = std::string_view(line).substr(0, line.find('='));
      const bool ours = name.starts_with("DLAUNCH_") && !is_worker_variable(name);
      if (ours && option_of_variable(name) == nullptr) result.push_back(line);
    }
    return result;
  }

  void add_options(Words& words, const HostStart& start) const {
    for (const Setting& setting : spec_.settings) {
      const bool ours = std::ranges::count(not_handed_on, setting.flag) > 0;
      const bool meeting = setting.flag == "rdzv-endpoint" && several();
      // A scheduler's settings are not handed on, save for the job's end: the hosts' agents cannot
      // learn that.
      const bool end = setting.flag == "deadline" || setting.flag == "deadline-latest";
      const bool told = setting.origin == Origin::scheduler && !end;
      if (setting.origin == Origin::standard || told) continue;
      if (!option_table().find(setting.flag)->no_effect.empty() || (ours && !meeting)) continue;
      words.push_back(option(setting.flag, setting.value + own_suffix(setting, start)));
    }
  }

  /// Hosts may share the folder, so each gets a --result of its own. An agent sees to
  /// --flight-file itself; nodes that are started by hand are given what names the user likes.
  static std::string own_suffix(const Setting& setting, const HostStart& start) {
    const bool alone = start.hosts.size() == 1;  // Else it starts others, and sees to theirs.
    const bool is_file = setting.flag == "result" && !setting.value.starts_with("/dev/");
    if (!is_file || !alone || start.first_node == 0) return "";
    return "." + std::to_string(start.first_node);
  }

  bool several() const { return spec_.nodes.most > 1; }

  void add_place(Words& words, const HostStart& start) const {
    const std::string job = spec_.job_id.value_or(here_.job);
    words.push_back(option("rdzv-id", job));
    if (several()) {
      const std::string least = std::to_string(spec_.nodes.least);
      const std::string most = std::to_string(spec_.nodes.most);
      words.push_back(option("nnodes", spec_.nodes.elastic() ? least + ":" + most : most));
      words.push_back(option("node-rank", std::to_string(start.first_node)));
      const bool chosen = chooses_meeting(spec_);
      if (chosen)
        words.push_back(option("rdzv-endpoint", host_port(first_host(), port_of_job(job))));
      // If we chose the place, the first node hosts. A start that starts others is told the same as
      // this one, and hands the roles out.
      if (chosen || spec_.rdzv_role == RendezvousRole::host) {
        const bool hosts = start.first_node == 0 || start.hosts.size() > 1;
        words.push_back(option("rdzv-role", hosts ? "host" : "join"));
      } else if (spec_.rdzv_role == RendezvousRole::join) {
        words.push_back(option("rdzv-role", "join"));
      }
    }
    if (here_.secret) words.push_back(option("secret-fd", std::to_string(secret_number)));
    if (start.hosts.size() > 1) {
      std::string hosts;
      for (const auto& host : start.hosts) {
        // The first host is that of the start itself.
        const bool there = hosts.empty();
        hosts += (there ? "" : ",") + host_text(there ? HostAsked{".", host.workers} : host);
      }
      words.push_back(option("hosts", hosts));
      words.push_back(option("ssh", joined_words(spec_.ssh)));
    } else {
      words.push_back(option("stdin", "none"));
    }
    words.emplace_back("--ends-with-stdin");
  }

  static std::string joined_words(const Words& words) {
    std::string text;
    for (const auto& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
  }

  std::string first_host() const {
    const std::string& name = spec_.hosts.front().name;
    if (name == here_name) return here_.hostname;
    return name.substr(name.find('@') + 1);
  }

  void add_part(Words& words, const Part& part, std::optional<int> workers) const {
    if (part.module) words.emplace_back("--module");
    if (part.no_python) words.emplace_back("--no-python");
    if (part.run_path) words.emplace_back("--run-path");
    words.push_back(
        option("nproc-per-node", workers ? std::to_string(*workers) : workers_text(part.workers)));
    for (const auto& [name, value] : part.variables) {
      const auto known = value ? *value : lookup(environment_, name).value_or("");
      words.push_back(option("env", name + "=" + std::string(known)));
    }
    if (!part.directory.empty()) words.push_back(option("cwd", part.directory));
    if (spec_.bench) {
      words.insert(words.end(), part.program.begin() + 1, part.program.end());
      return;
    }
    words.emplace_back("--");
    for (const auto& word : part.program) words.push_back(escaped(word));
  }

  const JobSpec& spec_;
  const std::span<const std::string> environment_;
  const Here& here_;
};

}  // namespace

bool chooses_meeting(const JobSpec& spec) {
  return spec.nodes.most > 1 && !was_given(spec, "rdzv-endpoint") &&
         !was_given(spec, "master-addr");
}

std::vector<HostStart> plan_starts(const JobSpec& spec, std::span<const std::string> environment,
                                   const Here& here) {
  const Lines lines(spec, environment, here);
  const std::size_t count = spec.hosts.size(), starts = std::min(count, starts_max);
  std::vector<HostStart> result;
  for (std::size_t i = 0; i < starts; ++i) {
    const std::size_t first = i * count / starts;
    result.push_back(lines.start(first, (i + 1) * count / starts - first));
  }
  return result;
}

std::string describe_starts(const JobSpec& spec, std::span<const HostStart> starts,
                            std::span<const std::string> notes) {
  std::string out = "Dry run: nothing is started.\n\nHosts:\n";
  for (const auto& start : starts) {
    int node = start.first_node;
    for (const auto& host : start.hosts) {
      out += "  node rank " + std::to_string(node++) + ": " + host_text(host);
      if (&host != &start.hosts.front()) out += ", started by " + start.host;
      out += "\n";
    }
  }
  out += "\nLines:\n";
  for (const auto& start : starts) out += "  " + shell_line(start.argv) + "\n";
  out += settings_text(spec);
  for (const auto& note : notes) out += "\nNote: " + note + "\n";
  return out;
}

}  // namespace dlaunch::launcher::remote
