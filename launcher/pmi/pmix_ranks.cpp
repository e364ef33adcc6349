#include "launcher/pmi/pmix_ranks.hpp"

#include "runtime/base/os/socket.hpp"

#include <dlaunch/error.hpp>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>

#include <boost/asio/post.hpp>

namespace dlaunch::launcher {
namespace {

std::string temporary_folder() {
  std::error_code none;
  const auto path = std::filesystem::temp_directory_path(none);
  return none ? "/tmp" : path.string();
}

/// A folder of our own, which nobody else may look into.
std::string make_folder(const std::string& where) {
  std::string path = where + "/dlaunch-pmix-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    throw Error(Errc::internal, "cannot make a folder " + path + ": " + errno_text(errno));
  }
  return path;
}

}  // namespace

PmixRanks::PmixRanks(boost::asio::io_context& io, NodeExchange& exchange, Wishes wishes)
    : io_(io), exchange_(exchange), wishes_(std::move(wishes)), library_(load_pmix(*this)) {}

PmixRanks::~PmixRanks() {
  library_.end();
  std::error_code kept;
  for (const auto& folder : {folder_, memory_folder_}) {
    if (!folder.empty()) std::filesystem::remove_all(folder, kept);
  }
}

void PmixRanks::begin(PmixJob job, bool shares_host) {
  if (folder_.empty()) folder_ = make_folder(temporary_folder());
  if (shares_host && memory_folder_.empty()) memory_folder_ = make_folder("/dev/shm");
  job.folder = folder_;
  const PmixNode& own = job.nodes[job.own];
  first_rank_ = own.first_rank;
  stages_.assign(static_cast<std::size_t>(own.ranks), Stage::silent);
  fence_ = 0;
  alive_ = std::make_shared<int>(0);  // Requests of the epoch before are void.
  std::string why;
  if (!library_.begin(job, why)) throw Error(Errc::internal, "PMIx cannot be served: " + why);
}

std::vector<std::string> PmixRanks::variables(int rank) const {
  std::vector<std::string> variables;
  std::string why;
  if (!library_.variables(first_rank_ + rank, variables, why)) {
    throw Error(Errc::internal, "PMIx cannot be served: " + why);
  }
  // Open MPI names its files by host and local rank, both of which agents of one host share.
  for (const char* name :
       {"OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"}) {
    if (!memory_folder_.empty()) variables.push_back(name + ("=" + memory_folder_));
  }
  return variables;
}

void PmixRanks::later(std::function<void()> act) {
  boost::asio::post(io_, [alive = std::weak_ptr(alive_), act = std::move(act)] {
    if (!alive.expired()) act();
  });
}

void PmixRanks::on_connected(int rank) {
  later([this, rank] { at(local(rank)) = Stage::inside; });
}

void PmixRanks::on_finalized(int rank) {
  later([this, rank] { at(local(rank)) = Stage::over; });
}

void PmixRanks::on_aborted(int rank, int exit_code, const std::string& message) {
  later([this, rank, exit_code, message] {
    at(local(rank)) = Stage::over;
    wishes_.abort(local(rank), exit_code, message);
  });
}

void PmixRanks::on_refused(int rank, const std::string& what) {
  later([this, rank, what] { wishes_.refused(local(rank), what); });
}

void PmixRanks::on_fence(Bytes mine, Fenced done) {
  later([this, mine = std::move(mine), done = std::move(done)] {
    exchange_.all_gather("mpi/pmix", fence_++, mine, [done](const NodeExchange::Gathered& known) {
      Bytes all;
      const auto* of_nodes = std::get_if<std::vector<Bytes>>(&known);
      if (of_nodes == nullptr) return done(false, all);
      for (const Bytes& one : *of_nodes) all.insert(all.end(), one.begin(), one.end());
      done(true, all);
    });
  });
}

}  // namespace dlaunch::launcher
