// The agent's health over HTTP, as a container's probes ask for it.
#include "runtime/base/os/socket.hpp"
#include "tests/process/job.hpp"

#include <csignal>

#include <doctest/doctest.h>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

/// "200 ok" of the page at this path.
std::string asked(std::uint16_t port, const std::string& path) {
  const auto deadline = Clock::now() + patience;
  const unique_fd socket = connect_until("127.0.0.1", port, deadline);
  const timeval limit{20, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  REQUIRE(::write(socket.get(), request.data(), request.size()) ==
          static_cast<ssize_t>(request.size()));
  std::string answer;
  char block[4096];
  for (ssize_t size = 0; (size = ::read(socket.get(), block, sizeof block)) > 0;) {
    answer.append(block, static_cast<std::size_t>(size));
  }
  const auto body = answer.find("\r\n\r\n");
  REQUIRE_MESSAGE(body != std::string::npos, answer);
  return answer.substr(9, 4) + answer.substr(body + 4, answer.size() - body - 5);
}

/// The same, once it is no longer "503 waiting": a worker may write before its agent has noted that
/// all of them run.
std::string asked_when_ready(std::uint16_t port) {
  const auto deadline = Clock::now() + patience;
  std::string answer = asked(port, "/readyz");
  while (answer.starts_with("503 waiting") && Clock::now() < deadline) {
    answer = asked(port, "/readyz");
  }
  return answer;
}

/// The port that was told.
std::uint16_t port_of(Job& job) {
  const std::string words = "dlaunch: the health of this node is told at http://127.0.0.1:";
  REQUIRE(job.saw("/healthz\n"));
  const auto at = job.err().find(words);
  REQUIRE_MESSAGE(at != std::string::npos, job.err());
  return static_cast<std::uint16_t>(std::stoi(job.err().substr(at + words.size())));
}

}  // namespace

TEST_CASE("alive and ready while the workers run") {
  const std::string token = unique_token();
  Job job({"--standalone", "--health-port", "0", victim(), "stubborn", token});
  const auto port = port_of(job);
  REQUIRE(job.saw("READY"));
  CHECK(asked(port, "/healthz") == "200 ok");
  CHECK(asked_when_ready(port) == "200 ready");
  CHECK(asked(port, "/") == "404 nothing is here; there are /healthz and /readyz");
  job.send(SIGTERM);
  REQUIRE(job.saw("got 15"));
  CHECK(asked(port, "/healthz") == "200 ok");
  CHECK(asked(port, "/readyz") == "503 stopping: the workers are being ended");
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
}

TEST_CASE("alive and not ready while the node waits for others") {
  Job job({"--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:" + std::to_string(free_port()),
           "--health-port", "0", "true"});
  const auto port = port_of(job);
  CHECK(asked(port, "/healthz") == "200 ok");
  CHECK(asked(port, "/readyz") == "503 waiting: this node has no place in the job yet");
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
}

TEST_CASE("a port that another process has") {
  const unique_fd held = listen_tcp(resolve("127.0.0.1", 0).front());
  const std::string port = std::to_string(local_address(held.get()).port());
  Job job({"--standalone", "--health-port", port, "true"});
  CHECK(job.wait().code == 69);
  CHECK(job.err().starts_with("dlaunch: --health-port: listening on 127.0.0.1:" + port +
                              ": Address already in use"));
}

}  // namespace dlaunch::process_test
