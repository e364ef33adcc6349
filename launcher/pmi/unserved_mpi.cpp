#include "launcher/pmi/unserved_mpi.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>

namespace dlaunch::launcher {
namespace {

/// Programs load their MPI at the start, interpreters somewhat later.
constexpr auto looks = std::to_array<std::chrono::milliseconds>(
    {std::chrono::milliseconds(500), std::chrono::seconds(2), std::chrono::seconds(10)});

/// The file of the MPI that a process has loaded; empty where there is none, or /proc is silent.
std::string mpi_of(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto path = line.find('/');
    if (path == line.npos) continue;
    const pmi::Speech speech = pmi::speech_of_library(std::string_view(line).substr(path));
    if (speech.pmi || speech.pmix) return line.substr(path);
  }
  return {};
}

}  // namespace

void UnservedMpi::begin(const std::vector<pid_t>& pids, int first_rank) {
  pids_ = pids;
  first_rank_ = first_rank;
  if (!told_) look_after(0);
}

void UnservedMpi::look_after(std::size_t number) {
  if (number >= looks.size()) return;
  timer_.expires_after(number == 0 ? looks[0] : looks[number] - looks[number - 1]);
  timer_.async_wait([this, number](auto error) {
    if (error) return;
    look();
    if (!told_) look_after(number + 1);
  });
}

/// The first rank stands for all: they run the same program.
void UnservedMpi::look() {
  const auto found = std::ranges::find_if(pids_, [](pid_t pid) { return pid > 0; });
  const std::string library = found == pids_.end() ? "" : mpi_of(*found);
  if (library.empty()) return;
  told_ = true;
  const pmi::Speech speech = pmi::speech_of_library(library);
  say_("rank " + std::to_string(first_rank_ + static_cast<int>(found - pids_.begin())) +
       " has loaded an MPI (" + library +
       "), which the program's file did not tell of: each rank is a world of its own; --mpi " +
       (speech.pmi ? "pmi" : "pmix") + " makes them one");
}

}  // namespace dlaunch::launcher
