#include "launcher/process/workers.hpp"

#include "launcher/process/process_tree.hpp"
#include "launcher/process/spawn.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <paths.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

constexpr mode_t directory_mode = 0755;
constexpr mode_t log_mode = 0644;
/// The first descriptor that we use in workers. Lower numbers are left to the program's own, which
/// shells number from 3.
constexpr int inherited_number_min = 3;

StartProblem system_problem(const std::string& what) {
  const int error = errno;
  const char* const cure = error == EMFILE ? " (see ulimit -n)" : "";
  return {exit_code::internal, what + ": " + errno_text(error) + cure};
}

std::optional<StartProblem> make_directories(const std::vector<std::string>& directories) {
  for (const auto& directory : directories) {
    if (::mkdir(directory.c_str(), directory_mode) != 0 && errno != EEXIST) {
      auto problem = system_problem("cannot make the directory " + directory);
      problem.exit_code = exit_code::unreachable;
      return problem;
    }
  }
  return std::nullopt;
}

/// Empty, with errno, where it cannot be written.
unique_fd open_log(const std::string& path) {
  return unique_fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, log_mode));
}

/// As the kernel takes it; empty for no cores.
std::vector<unsigned long> mask_of(const std::vector<int>& cores) {
  if (cores.empty()) return {};
  const std::size_t size = CPU_ALLOC_SIZE(cores.back() + 1);
  std::vector<unsigned long> mask(size / sizeof(unsigned long));
  auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
  for (const int core : cores) CPU_SET_S(static_cast<std::size_t>(core), size, set);
  return mask;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const auto& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

}  // namespace

Workers::Workers(Setting setting)
    : setting_(std::move(setting)), null_(::open(_PATH_DEVNULL, O_RDWR | O_CLOEXEC)) {
  if (!null_) throw Error(Errc::internal, "cannot open /dev/null: " + errno_text(errno));
  const auto reserve = [this](unique_fd& number) {
    number.reset(::fcntl(null_.get(), F_DUPFD_CLOEXEC, inherited_number_min));
    if (!number) throw Error(Errc::internal, "out of descriptors: " + errno_text(errno));
  };
  reserve(control_number_);
  if (setting_.serves_pmi) reserve(pmi_number_);
}

std::optional<StartProblem> Workers::start(const LaunchPlan& plan) {
  pids_.assign(plan.workers.size(), 0);
  controls_.clear();
  pmi_sockets_.clear();
  nothing_left_ = false;
  paths_.clear();
  for (const ProgramPlan& program : plan.programs) {
    auto found = find_program(program);
    if (found.problem) return found.problem;
    paths_.push_back(std::move(found.path));
  }
  if (auto problem = make_directories(plan.directories)) return problem;
  if (auto problem = open_filtered(plan)) return problem;

  std::vector<Words> words;
  for (const ProgramPlan& program : plan.programs) {
    words.push_back({pointers(program.argv), pointers(program.environment)});
    words.back().environ.pop_back();
  }
  if (setting_.make_cgroup) cgroup_ = setting_.make_cgroup();
  const Output::Pace pace(setting_.output);
  std::optional<StartProblem> problem;
  StartTrial trial;
  auto began = Clock::now();
  for (const auto& worker : plan.workers) {
    problem = start_one(plan, worker, words[worker.program], trial.keeps_core());
    if (problem) break;
    const auto now = Clock::now();
    trial.took(now - began);
    began = now;
  }
  filtered_out_.reset();
  filtered_err_.reset();
  return problem;
}

std::optional<StartProblem> Workers::open_filtered(const LaunchPlan& plan) {
  for (const Stream stream : {Stream::out, Stream::err}) {
    const auto& filter = stream == Stream::out ? plan.filter_out : plan.filter_err;
    auto& log = stream == Stream::out ? filtered_out_ : filtered_err_;
    log.reset();
    if (!filter) continue;
    log = std::make_shared<Output::SharedLog>();
    log->path = filter->file;
    log->fd = open_log(filter->file);
    if (!log->fd) return system_problem("cannot write the log " + filter->file);
  }
  return std::nullopt;
}

std::optional<StartProblem> Workers::start_one(const LaunchPlan& plan, const WorkerSpec& worker,
                                               Words& words, bool keeps_core) {
  const ProgramPlan& program = plan.programs[worker.program];
  std::string& path = paths_[worker.program];
  auto& [argv, environ] = words;
  const std::size_t common = environ.size();
  for (const auto& variable : worker.own_environment) {
    environ.push_back(const_cast<char*>(variable.c_str()));
  }
  environ.push_back(nullptr);

  Pipes pipes;
  if (auto problem = connect_stdio(plan, worker, pipes)) return problem;
  if (setting_.output) setting_.output->add(std::exchange(sources_, {}));
  auto [ours, theirs] = socket_pair();
  std::pair<unique_fd, unique_fd> pmi;
  if (pmi_number_) pmi = socket_pair();
  SpawnRequest request;
  request.path = path.c_str();
  request.argv = argv.data();
  request.environ = environ.data();
  request.stdio[0] = worker.stdio.input ? -1 : null_.get();
  request.stdio[1] = pipes.out.get();
  request.stdio[2] = pipes.err ? pipes.err.get() : pipes.out.get();
  request.control = {theirs.get(), control_number_.get()};
  request.pmi = {pmi.second.get(), pmi_number_.get()};
  // With several workers none keeps the terminal: its keys are for all of them, through the front.
  request.foreground = setting_.give_terminal && worker.stdio.inherit && worker.stdio.input;
  request.mask = setting_.mask;
  request.ignore_children = setting_.ignore_children;
  request.descriptors = &setting_.descriptors;
  request.keeps_core = keeps_core;
  if (!program.directory.empty()) request.directory = program.directory.c_str();
  const auto mask = mask_of(worker.cores);
  if (!mask.empty()) request.cores = reinterpret_cast<const cpu_set_t*>(mask.data());
  request.cores_bytes = mask.size() * sizeof(unsigned long);
  if (cgroup_) request.cgroup = cgroup_->descriptor();
  SpawnResult result = spawn(request);
  if (result.error == ENOEXEC) {
    if (auto foreign = no_script(program.argv.front(), path)) return foreign;
    // A script without "#!" is run by the shell, as everywhere. argv[0] stays the name it was
    // called by.
    std::vector<char*> script = {const_cast<char*>(_PATH_BSHELL), path.data()};
    script.insert(script.end(), argv.begin() + 1, argv.end());
    request.path = _PATH_BSHELL;
    request.argv = script.data();
    result = spawn(request);
  }
  environ.resize(common);
  if (result.error != 0) return exec_problem(program.argv.front(), path, result.error);
  pids_[static_cast<std::size_t>(worker.local_rank)] = result.pid;
  controls_.push_back(std::move(ours));
  if (pmi_number_) pmi_sockets_.push_back(std::move(pmi.first));
  return std::nullopt;
}

std::optional<StartProblem> Workers::connect_stdio(const LaunchPlan& launch,
                                                   const WorkerSpec& worker, Pipes& pipes) {
  const StdioPlan& plan = worker.stdio;
  if (plan.inherit) return std::nullopt;
  auto problem = connect(launch, worker, Stream::out, pipes.out);
  if (problem) return problem;
  if (setting_.output->is_one_place() && plan.only_console()) {
    sources_.back().carries_errors = true;
    return std::nullopt;
  }
  return connect(launch, worker, Stream::err, pipes.err);
}

std::optional<StartProblem> Workers::connect(const LaunchPlan& launch, const WorkerSpec& worker,
                                             Stream stream, unique_fd& theirs) {
  const StreamPlan& plan = stream == Stream::out ? worker.stdio.out : worker.stdio.err;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_problem("cannot open a pipe");
  Output::Source source;
  source.pipe.reset(ends[0]);
  theirs.reset(ends[1]);
  set_nonblocking(source.pipe.get(), true);
  source.rank = worker.rank;
  source.to = stream;
  source.carries_errors = stream == Stream::err;
  source.prefix = worker.stdio.prefix;
  source.shown = plan.console;
  if (plan.file) {
    source.log_path = *plan.file;
    source.log = open_log(*plan.file);
    if (!source.log) return system_problem("cannot write the log " + *plan.file);
  }
  if (plan.filtered) {
    const auto& filter = stream == Stream::out ? launch.filter_out : launch.filter_err;
    source.filter.emplace(filter->words, worker.stdio.filtered_prefix);
    source.filtered = stream == Stream::out ? filtered_out_ : filtered_err_;
  }
  sources_.push_back(std::move(source));
  return std::nullopt;
}

int Workers::local_rank_of(pid_t pid) const {
  // A worker leads its group, whose number is the worker's.
  for (const pid_t wanted : {pid, ::getpgid(pid)}) {
    const auto found = std::find(pids_.begin(), pids_.end(), wanted);
    if (wanted > 0 && found != pids_.end()) return static_cast<int>(found - pids_.begin());
  }
  return -1;
}

std::vector<Workers::Ended> Workers::reap(
    std::vector<Stopped>& stopped, const std::function<void(pid_t, const ExitStatus&)>& other) {
  std::vector<Ended> ended;
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED);
    if (pid <= 0) {
      const bool childless = pid < 0 && errno == ECHILD;
      nothing_left_ = childless && !(cgroup_ && cgroup_->is_populated());
      // No SIGCHLD tells of these processes' ends.
      if (childless && !nothing_left_) cgroup_->await_end();
      return ended;
    }
    const auto worker = std::find(pids_.begin(), pids_.end(), pid);
    if (worker == pids_.end()) {
      if (!WIFSTOPPED(status)) other(pid, exit_status_from_wait(status));
      continue;
    }
    const int local_rank = static_cast<int>(worker - pids_.begin());
    if (WIFSTOPPED(status)) {
      stopped.push_back({local_rank, pid, WSTOPSIG(status)});
      continue;
    }
    *worker = 0;
    ended.push_back({local_rank, pid, exit_status_from_wait(status)});
  }
}

void Workers::signal_all(int number) {
  // A worker that was not reaped still owns its number, and so its group's.
  for (const pid_t pid : pids_) {
    // A worker that left its group is signalled alone.
    if (pid > 0 && ::kill(-pid, number) != 0) ::kill(pid, number);
  }
  for (const pid_t pid : child_processes()) {
    if (std::find(pids_.begin(), pids_.end(), pid) == pids_.end()) ::kill(pid, number);
  }
  if (number == SIGKILL && cgroup_) cgroup_->kill();
}

void Workers::stop_all(int number) {
  signal_all(number);
  signal_all(SIGCONT);
}

std::vector<pid_t> Workers::left() const {
  std::vector<pid_t> all = child_processes();
  if (cgroup_) {
    const auto inside = cgroup_->processes();
    all.insert(all.end(), inside.begin(), inside.end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::vector<int> Workers::signal_catchers(int number) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < pids_.size(); ++i) {
    if (pids_[i] <= 0) continue;
    const auto catchers = catchers_below(pids_[i], number);
    for (const pid_t pid : catchers) ::kill(pid, number);
    if (!catchers.empty()) ranks.push_back(static_cast<int>(i));
  }
  return ranks;
}

}  // namespace dlaunch::launcher
