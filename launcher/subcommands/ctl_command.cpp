#include "launcher/report/daemon_jobs.hpp"
#include "launcher/subcommands/daemon_http.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/secret/private_file.hpp"
#include "runtime/base/text/control.hpp"
#include "runtime/base/text/take.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <unistd.h>

namespace dlaunch::launcher {
namespace {

/// The backup has begun and is not complete.
constexpr int accepted = 202;

struct Asked {
  std::string host;
  std::uint16_t port = 0;
  std::string token_file, reason;
  Clock::duration timeout{};
  bool json = false;
};

Taken endpoint(Asked& asked, std::string_view value) {
  const auto read = read_endpoint(value);
  if (const auto* wrong = std::get_if<Complaint>(&read)) return *wrong;
  const auto& at = std::get<EndpointAsked>(read);
  if (!at.port) return Complaint{in_quotes(value) + " is not HOST:PORT, as in 127.0.0.1:29401"};
  asked.host = at.host;
  asked.port = *at.port;
  return std::nullopt;
}

constexpr std::string_view options = "Options";

// clang-format off
constexpr auto rows = std::to_array<OptionRow<Asked>>({
  {{"endpoint", 0, "HOST:PORT", "127.0.0.1:29401", options, {},
    "Address at which dlaunchd serves its status, its key http; from elsewhere by ssh -L."}, endpoint},
  {{"token-file", 0, "FILE", "", options, {},
    "The operator's token, alone or behind the name; for actions. Nobody else may read the file."},
   take::text<&Asked::token_file>},
  {{"reason", 0, "TEXT", "", options, {},
    "The reason for an action: the nodes are told, and it is logged."},
   take::any_text<&Asked::reason>},
  {{"timeout", 0, "TIME", "10s", options, {}, "How long to wait for the answer."},
   take::duration<&Asked::timeout>},
  {{"json", 0, "", "0", options, {}, "What dlaunchd says of its jobs as it is, as JSON."},
   take::flag<&Asked::json>},
  {{"help", 'h', "", "", options, {}, "Print this."}, nullptr},
});
// clang-format on

/// The actions that can be asked for, each with the number of words (job id, node id) behind it.
struct Verb {
  std::string_view name;
  std::size_t least, most;
  std::string_view method;
  std::string_view tail;  ///< Behind the job.
  std::string_view what;
};
constexpr auto verbs = std::to_array<Verb>({
    {"jobs", 0, 0, "GET", "", "List jobs"},
    {"job", 1, 1, "GET", "", "Show a job"},
    {"stop", 1, 1, "POST", "/stop", "End a job"},
    {"drain", 0, 1, "POST", "/drain", "Let a job end and no node in, or take no new job"},
    {"resume", 0, 0, "DELETE", "", "Take new jobs again"},
    {"remove", 1, 1, "DELETE", "", "End a job and forget it"},
    {"evict", 2, 2, "POST", "", "Take a node of a job for lost"},
    {"backup", 1, 1, "POST", "", "Save what dlaunchd keeps on its disk"},
});

std::string target_of(const Verb& verb, const std::vector<std::string>& words) {
  const std::string api = "/api/v1/";
  if (verb.name == "jobs") return api + "jobs";
  if (verb.name == "backup") return api + "backups/" + percent_encoded(words[1]);
  if (words.size() == 1) return api + "drain";
  std::string target = api + "jobs/" + percent_encoded(words[1]) + std::string(verb.tail);
  if (words.size() == 3) target += "/nodes/" + percent_encoded(words[2]) + "/evict";
  return target;
}

/// The last word of the only line.
std::string read_token(const std::string& path) {
  constexpr std::size_t bytes_max = 512;
  constexpr const char* what = "the operator's token";
  const unique_fd fd = open_private_file(what, path);
  std::string text(bytes_max, '\0');
  const ssize_t n = ::read(fd.get(), text.data(), text.size());
  if (n < 0) throw unreadable_secret(what, path, errno_text(errno));
  text.resize(static_cast<std::size_t>(n));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  if (text.empty() || text.find('\n') != std::string::npos) {
    throw unreadable_secret(what, path, "it has one line: TOKEN, or NAME TOKEN");
  }
  const auto blank = text.find_last_of(" \t");
  return blank == std::string::npos ? text : text.substr(blank + 1);
}

EarlyExit shown(const Asked& asked, const Verb& verb, const DaemonAnswer& answer) {
  std::optional<std::string> text;
  if (answer.code == 200 && verb.method == "GET") {
    text = verb.name == "jobs" ? daemon_jobs_text(answer.body) : daemon_job_text(answer.body);
    if (text && asked.json) text = answer.body;
  } else if (answer.is_text) {
    text = answer.body;
  }
  if (!text) {
    return ctl_options().refuse(
        exit_code::unreachable,
        "what answers at " + host_port(asked.host, asked.port) + " is no dlaunchd of this version");
  }
  if (answer.code == 200) return {.code = 0, .text = *text};
  const bool denied = answer.code == 401 || answer.code == 403;
  const auto sentence = without_controls(answer.body.substr(0, answer.body.find('\n')));
  return ctl_options().refuse(denied ? exit_code::authentication : exit_code::failed,
                              sentence.empty() ? "HTTP " + std::to_string(answer.code) : sentence);
}

/// Waits for a backup, which takes longer than the answer that it has begun. Each question about it
/// has an answer's time.
DaemonAnswer await_backup(const Asked& asked, const std::string& target) {
  constexpr auto pause = std::chrono::milliseconds(100);
  std::string before;
  auto deadline = Clock::now();
  for (;;) {
    auto now = ask_daemon(asked.host, asked.port, {"GET", target, ""},
                          deadline_after(asked.timeout, Clock::now()));
    if (now.code != accepted) return now;
    if (now.body != std::exchange(before, now.body)) {
      deadline = deadline_after(asked.timeout, Clock::now());
    } else if (Clock::now() >= deadline) {
      throw Error(Errc::timeout,
                  "the backup makes no progress, and is not ended; dlaunchd says " +
                      in_quotes(without_controls(before.substr(0, before.find('\n')))));
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

const OptionTable& ctl_options() {
  static const OptionTable table(
      "dlaunch ctl",
      "Usage: dlaunch ctl jobs | job ID [options]\n"
      "       dlaunch ctl stop ID | drain [ID] | resume | remove ID | evict ID NODE [options]\n"
      "       dlaunch ctl backup NAME [options]\n"
      "\n"
      "Shows the jobs of a dlaunchd, and acts on them: stop ends a job; drain lets its\n"
      "epoch go on to its end and no node in; remove forgets it, too; evict takes a node for\n"
      "lost. Without ID, drain has dlaunchd take no new job, and resume has it take them again.\n"
      "backup saves the state that dlaunchd keeps on its disk, and waits for that.\n",
      rows);
  return table;
}

std::vector<SubcommandWords> ctl_words() {
  std::vector<SubcommandWords> words;
  for (const Verb& verb : verbs) words.push_back({verb.name, verb.what});
  return words;
}

EarlyExit run_ctl(std::span<const std::string> arguments) {
  Asked asked;
  GivenOptions given(ctl_options());
  std::vector<std::string> words;
  if (auto stop = given.take_arguments(arguments, {.most = 3}, words)) return *std::move(stop);
  if (auto stop = given.apply(rows, asked)) return *std::move(stop);
  const auto verb = std::ranges::find(verbs, words.empty() ? "" : words.front(), &Verb::name);
  if (verb == verbs.end()) {
    return ctl_options().refuse(
        exit_code::usage,
        (words.empty() ? std::string("one word says what to do")
                       : in_quotes(words.front()) + " is none of these words") +
            ": " + joined(verbs, [](const Verb& each) { return std::string(each.name); }));
  }
  if (words.size() - 1 < verb->least || words.size() - 1 > verb->most) {
    return ctl_options().refuse(
        exit_code::usage,
        std::string(verb->name) + (verb->most == 0          ? " takes no more words"
                                   : verb->most == 2        ? " takes a job's id and a node's"
                                   : verb->name == "backup" ? " takes a name for it, and no more"
                                                            : " takes a job's id, and no more"));
  }
  const auto empty = std::find(words.begin(), words.end(), "");
  if (empty != words.end()) {
    const bool is_node = empty - words.begin() == 2;
    return ctl_options().refuse(exit_code::usage,
                                std::string(verb->name == "backup" ? "the backup's name"
                                            : is_node              ? "the node's id"
                                                                   : "the job's id") +
                                    " is empty");
  }
  const bool acts = verb->method != "GET";
  if (acts && asked.json) {
    return ctl_options().refuse(
        exit_code::usage,
        "--json is for jobs and job; " + std::string(verb->name) + " answers with a sentence");
  }
  if (acts && asked.token_file.empty()) {
    return ctl_options().refuse(exit_code::usage, std::string(verb->name) +
                                                      " needs --token-file FILE, with a token of "
                                                      "dlaunchd's http-token-file");
  }
  try {
    DaemonRequest request{std::string(verb->method), target_of(*verb, words), ""};
    if (acts) request.token = read_token(asked.token_file);
    const std::string target = request.target;
    if (acts && !asked.reason.empty()) request.target += "?reason=" + percent_encoded(asked.reason);
    auto answer =
        ask_daemon(asked.host, asked.port, request, deadline_after(asked.timeout, Clock::now()));
    if (verb->name == "backup" && answer.code == 200) answer = await_backup(asked, target);
    return shown(asked, *verb, answer);
  } catch (const Error& error) {
    const bool misused = error.errc() == Errc::misuse;
    return ctl_options().refuse(misused ? exit_code::usage : exit_code::unreachable, error.what());
  }
}

}  // namespace dlaunch::launcher
