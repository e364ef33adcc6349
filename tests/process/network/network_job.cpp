#include "tests/process/network/network_job.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
NetworkJob::NetworkJob(Network& network, const std::string& nnodes, Strings options, int ticks)
    : network_(network), ticks_(ticks) {
  line_ = {dlaunch_path(),
           "--nnodes",
           nnodes,
           "--rdzv-endpoint",
           network.address(0) + ":29400",
           "--rdzv-conf",
           "keep_alive_interval=500ms,keep_alive_max_attempt=6"};
  line_.insert(line_.end(), options.begin(), options.end());
}

NetworkJob::~NetworkJob() {
  jobs_.clear();
  for (const auto& token : tokens_) {
    for (const pid_t pid : processes_with(token)) ::kill(pid, SIGCONT);
    CHECK_MESSAGE(all_gone(token), "a node left a process behind");
  }
}

Job& NetworkJob::add(const Strings& options, const Job::Environment& environment) {
  return add_under({}, options, environment);
}

Job& NetworkJob::add_under(const Strings& program, const Strings& options,
                           const Job::Environment& environment) {
  const int node = size();
  tokens_.push_back(unique_token());
  Strings line = program;
  line.insert(line.end(), line_.begin(), line_.end());
  if (std::find(options.begin(), options.end(), "--node-id") == options.end()) {
    line.insert(line.end(), {"--node-id", Network::host(node)});
  }
  line.insert(line.end(), options.begin(), options.end());
  line.insert(line.end(), program_.begin(), program_.end());
  line.insert(line.end(), {tokens_.back(), std::to_string(ticks_)});
  line = network_.on(node, line);
  const std::string first = line.front();
  line.erase(line.begin());
  jobs_.push_back(std::make_unique<Job>(std::move(line), environment, first));
  return *jobs_.back();
}

std::vector<pid_t> NetworkJob::processes(int node) const {
  return processes_with(tokens_.at(static_cast<std::size_t>(node)));
}

void NetworkJob::signal_all(int node, int signal_number) const {
  std::set<pid_t> done;
  for (bool fresh = true; fresh;) {
    fresh = false;
    for (const pid_t pid : processes(node)) {
      if (!done.insert(pid).second) continue;
      ::kill(pid, signal_number);
      fresh = true;
    }
  }
}

bool NetworkJob::runs(int node, int epoch) {
  return (*this)[node].saw("place " + std::to_string(epoch) + " ");
}

bool NetworkJob::goes_on(int node, int ticks) {
  Job& job = (*this)[node];
  job.catch_up();
  return job.saw("tick\n", count(job.out(), "tick\n") + ticks);
}

bool NetworkJob::all_go_on() {
  for (auto& job : jobs_) job->catch_up();
  std::vector<int> before;
  for (auto& job : jobs_) before.push_back(count(job->out(), "tick\n"));
  for (std::size_t node = 0; node < jobs_.size(); ++node) {
    if (!jobs_[node]->saw("tick\n", before[node] + 10)) return false;
  }
  return true;
}

void NetworkJob::stop() {
  for (auto& job : jobs_) {
    if (job->pid() > 0) job->send(SIGINT);
  }
  for (auto& job : jobs_) {
    if (job->pid() > 0) job->wait();
  }
}

void NetworkJob::check_places() const {
  std::map<std::string, std::set<std::string>> ranks, sizes;
  for (const auto& job : jobs_) {
    std::istringstream lines(job->out());
    for (std::string line; std::getline(lines, line);) {
      const auto at = line.find("place ");
      if (at == std::string::npos) continue;
      std::istringstream words(line.substr(at));
      std::string word, epoch, rank, size, others;
      words >> word >> epoch >> rank >> size >> word >> others;
      if (others.empty()) continue;  // Cut off in the middle of a line.
      CHECK_MESSAGE(ranks[epoch].insert(rank).second,
                    "rank " << rank << " of epoch " << epoch << " was two workers'" << said());
      sizes[epoch].insert(size);
      CHECK_MESSAGE(sizes[epoch].size() == 1, "epoch " << epoch << " had two sizes" << said());
      CHECK_MESSAGE(others == "0", "a worker of another epoch lived when rank "
                                       << rank << " of epoch " << epoch << " began" << said());
    }
  }
}

std::string NetworkJob::said() const {
  std::string text;
  for (std::size_t node = 0; node < jobs_.size(); ++node) {
    text += "\n-- node " + Network::host(static_cast<int>(node)) + ":\n" + jobs_[node]->err();
    std::istringstream lines(jobs_[node]->out());
    for (std::string line; std::getline(lines, line);) {
      if (!line.ends_with("tick")) text += line + "\n";
    }
  }
  return text;
}

void Stretch::ended() const {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began_);
  std::printf("  %6lld ms  %s\n", static_cast<long long>(ms.count()), what_.c_str());
  std::fflush(stdout);
}

}  // namespace dlaunch::process_test
