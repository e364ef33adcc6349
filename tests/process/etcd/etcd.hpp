#pragma once

#include "rendezvous/state/etcd/gateway.hpp"
#include "tests/process/job.hpp"
#include "tests/support/skipped.hpp"
#include "tests/support/temporary_folder.hpp"

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

namespace dlaunch::process_test {

namespace etcd = rendezvous::etcd;

/// An etcd of some members on loopback, each of which may be killed and started again.
class EtcdCluster {
 public:
  static constexpr const char* path = "/usr/bin/etcd";
  /// Whether it can be tested; says why not.
  static bool is_there() {
    if (::access(path, X_OK) == 0) return true;
    testing::skipped(std::string("there is no ") + path);
    return false;
  }

  explicit EtcdCluster(int members) {
    for (int i = 0; i < members; ++i) members_.push_back({free_port(), free_port(), nullptr});
    for (int i = 0; i < members; ++i) start(i);
    etcd::Gateway gateway(servers().servers);
    gateway.ask("/kv/range", etcd::Json::object({{"key", "YQ=="}}), Clock::now() + patience);
  }
  void start(int member) {
    const auto peer_url = [this](int each) {
      return "http://127.0.0.1:" + std::to_string(members_[at(each)].peer_port);
    };
    std::string cluster;
    for (int i = 0; i < static_cast<int>(members_.size()); ++i) {
      cluster += (i == 0 ? "m" : ",m") + std::to_string(i) + "=" + peer_url(i);
    }
    const std::string name = "m" + std::to_string(member);
    const std::string url = url_of(member);
    members_[at(member)].process = std::make_unique<Job>(
        std::vector<std::string>{
            "--name", name, "--data-dir", (folder_.path() / name).string(), "--listen-client-urls",
            url, "--advertise-client-urls", url, "--listen-peer-urls", peer_url(member),
            "--initial-advertise-peer-urls", peer_url(member), "--initial-cluster", cluster,
            "--logger", "zap", "--log-outputs", "/dev/null"},
        Job::Environment{}, path);
  }
  void send(int member, int signal) { members_[at(member)].process->send(signal); }
  void kill(int member) {
    members_[at(member)].process->send(SIGKILL);
    members_[at(member)].process->wait();
  }
  /// As the value of --state.
  std::string state() const {
    std::string urls = "etcd:";
    for (int i = 0; i < static_cast<int>(members_.size()); ++i) {
      urls += (i == 0 ? "" : ",") + url_of(i);
    }
    return urls;
  }
  etcd::Servers servers() const {
    return std::get<etcd::Servers>(etcd::read_servers(state().substr(5)));
  }

 private:
  struct Member {
    std::uint16_t port = 0, peer_port = 0;
    std::unique_ptr<Job> process;
  };
  static std::size_t at(int member) { return static_cast<std::size_t>(member); }
  std::string url_of(int member) const {
    return "http://127.0.0.1:" + std::to_string(members_[at(member)].port);
  }

  testing::TemporaryFolder folder_;
  std::vector<Member> members_;
};

}  // namespace dlaunch::process_test
