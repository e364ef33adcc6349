// A rank that is struck in the midst of a call: `struck TOKEN shared|tcp|nodes CALL ELEMENTS VICTIM
// STRIKE STEP`. The others say what they are told; who takes fewer steps than STEP says how many.
#include "collectives/transport/strike.hpp"
#include "tests/support/apart.hpp"

#include <dlaunch/dlaunch.hpp>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

using namespace dlaunch;

namespace {

std::string strike_name;
std::atomic<int> steps_left{0}, steps_taken{0};

void strike() {
  ++steps_taken;
  if (steps_left.fetch_sub(1) != 0) return;
  if (strike_name == "kill") std::raise(SIGKILL);
  if (strike_name == "stop") std::raise(SIGSTOP);
  if (strike_name == "leave") ::_exit(0);
  if (strike_name == "throw") throw std::runtime_error("struck");
}

using CallBody = std::function<void(Communicator&, std::size_t elements)>;

const std::map<std::string, CallBody>& calls() {
  using Floats = std::vector<float>;
  static const std::map<std::string, CallBody> all = {
      {"barrier", [](Communicator& comm, std::size_t) { comm.barrier({.ordered_output = false}); }},
      {"broadcast",
       [](Communicator& comm, std::size_t n) {
         Floats x(n);
         comm.broadcast(x, 0);
       }},
      {"reduce",
       [](Communicator& comm, std::size_t n) {
         const Floats in(n);
         Floats out(n);
         comm.reduce(in, out, 0);
       }},
      {"all_reduce",
       [](Communicator& comm, std::size_t n) {
         Floats x(n);
         comm.all_reduce(x);
       }},
      {"all_gather",
       [](Communicator& comm, std::size_t n) {
         const Floats in(n);
         Floats out(n * static_cast<std::size_t>(comm.size()));
         comm.all_gather(in, out);
       }},
      {"gather",
       [](Communicator& comm, std::size_t n) {
         const Floats in(n);
         Floats out(n * static_cast<std::size_t>(comm.size()));
         comm.gather(in, out, 0);
       }},
      {"scatter",
       [](Communicator& comm, std::size_t n) {
         const Floats in(n * static_cast<std::size_t>(comm.size()));
         Floats out(n);
         comm.scatter(in, out, 0);
       }},
      {"reduce_scatter",
       [](Communicator& comm, std::size_t n) {
         const Floats in(n * static_cast<std::size_t>(comm.size()));
         Floats out(n);
         comm.reduce_scatter(in, out);
       }},
      {"all_to_all",
       [](Communicator& comm, std::size_t n) {
         const Floats in(n * static_cast<std::size_t>(comm.size()));
         Floats out(in.size());
         comm.all_to_all(in, out);
       }},
      {"messages", [](Communicator& comm, std::size_t n) {  // Around a ring.
         const Floats out(n);
         Floats in(n);
         const int next = (comm.rank() + 1) % comm.size();
         const int previous = (comm.rank() + comm.size() - 1) % comm.size();
         if (comm.rank() == 0) {
           comm.send(out, next);
           comm.recv(in, previous);
         } else {
           comm.recv(in, previous);
           comm.send(out, next);
         }
       }}};
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8 || !calls().contains(argv[3])) return 64;
  const auto elements = static_cast<std::size_t>(std::atoll(argv[4]));
  const int victim = std::atoi(argv[5]);
  strike_name = argv[6];
  int rank = -1;
  try {
    World world = World::init();
    if (std::string_view(argv[2]) == "tcp") {
      world =
          World(world.info(), world.store(), std::make_shared<testing::Apart>(world.membership()));
    }
    rank = world.rank();
    Communicator comm(world);
    comm.set_timeout(std::chrono::milliseconds(strike_name == "stop" ? 300 : 15'000));
    const CallBody& call = calls().at(argv[3]);
    call(comm, elements);  // Teams and connections are there.
    comm.barrier({.ordered_output = false});
    if (rank == victim) {
      steps_left = std::atoi(argv[7]);
      transport::armed_strike = strike;
    }
    call(comm, elements);
    transport::armed_strike = nullptr;
    if (rank == victim) std::printf("%d steps\n", steps_taken.load());
    // Who had no more to do in the call is told in the next one.
    comm.barrier({.ordered_output = false});
    comm.barrier({.ordered_output = false});
    return 0;
  } catch (const Error& error) {
    std::printf("rank %d told %d: %s\n", rank, static_cast<int>(error.errc()), error.what());
  } catch (const std::exception& error) {
    std::printf("rank %d threw: %s\n", rank, error.what());
  }
  std::fflush(stdout);
  return 3;
}
