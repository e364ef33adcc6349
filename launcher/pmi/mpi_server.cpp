#include "launcher/pmi/mpi_server.hpp"

#include "runtime/base/bytes.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <set>
#include <utility>
#include <variant>

#include <sys/socket.h>

namespace dlaunch::launcher {
namespace {

namespace asio = boost::asio;

/// The most unread answers of a rank. A PMI client waits for each answer, so one that leaves more
/// unread is none.
constexpr std::size_t unsent_bytes_max = 1u << 20;
/// How long the other nodes, which were admitted at the same time, may take to describe themselves.
constexpr auto nodes_timeout = std::chrono::seconds(30);
/// Names of hosts are shorter.
constexpr std::size_t host_bytes_max = 4096;

/// A key-value space's name is one word, and short.
std::string space_name(const std::string& job, std::uint64_t epoch) {
  constexpr std::size_t bytes_max = 100;
  return "dlaunch_" + job.substr(0, bytes_max) + "_" + std::to_string(epoch);
}

struct NodeOfJob {
  int first_rank = 0;
  int ranks = 0;
  std::string host;
};

std::optional<std::vector<NodeOfJob>> read_nodes(const std::vector<Bytes>& gathered) {
  std::vector<NodeOfJob> nodes;
  for (const Bytes& bytes : gathered) {
    ByteReader reader(bytes);
    NodeOfJob node;
    node.first_rank = reader.integer<std::int32_t>();
    node.ranks = reader.integer<std::int32_t>();
    node.host = reader.text(host_bytes_max);
    if (!reader.ok() || node.ranks < 1) return std::nullopt;
    nodes.push_back(std::move(node));
  }
  std::ranges::sort(nodes, {}, &NodeOfJob::first_rank);
  return nodes;
}

/// Agents may share a host; for PMIx they are nodes all the same.
PmixJob pmix_job(const std::string& name_space, const std::vector<NodeOfJob>& nodes,
                 const store::NodePlace& place) {
  PmixJob job;
  job.name_space = name_space;
  std::set<std::string> names;
  for (const auto& node : nodes) {
    if (node.first_rank == place.first_rank) job.own = job.nodes.size();
    std::string name = node.host;
    if (!names.insert(name).second) name += "." + std::to_string(job.nodes.size());
    job.nodes.push_back({name, node.first_rank, node.ranks});
  }
  return job;
}

}  // namespace

MpiServer::MpiServer(asio::io_context& io, const pmi::Speech& offer, MpiListener& listener)
    : io_(io), listener_(listener), exchange_(io), pmix_(make_pmix(offer)) {}

std::unique_ptr<PmixRanks> MpiServer::make_pmix(const pmi::Speech& offer) {
  if (!offer.pmix) return nullptr;
  try {
    return std::make_unique<PmixRanks>(
        io_, exchange_,
        PmixRanks::Wishes{.abort =
                              [this](int rank, int code, const std::string& message) {
                                listener_.on_mpi_said(pmi::abort_text(name(rank), code, message));
                                abort(rank, code);
                              },
                          .refused =
                              [this](int rank, const std::string& what) {
                                listener_.on_mpi_said(pmi::refusal_text(name(rank), what));
                              }});
  } catch (const Error& error) {
    if (!offer.pmi) throw;
    listener_.on_mpi_said(error.what() + std::string("; only PMI is offered (MPICH, Intel MPI)"));
    return nullptr;
  }
}

MpiServer::~MpiServer() = default;

void MpiServer::begin(const Epoch& epoch, store::Uplink* uplink, std::function<void()> known) {
  epoch_ = epoch;
  lines_.clear();
  aborted_.clear();
  ranks_.reset();
  exchange_.begin(uplink, epoch.place);
  Bytes mine;
  ByteWriter writer(mine);
  writer.integer(std::int32_t{epoch.place.first_rank});
  writer.integer(std::int32_t{epoch.place.local_size});
  writer.text(epoch.host);
  const auto on_known = [this, known = std::move(known)](const NodeExchange::Gathered& nodes) {
    on_nodes(nodes);
    known();
  };
  if (uplink == nullptr) return on_known(std::vector<Bytes>{std::move(mine)});
  exchange_.all_gather("mpi/nodes", 0, std::move(mine), on_known,
                       {.microseconds = std::chrono::microseconds(nodes_timeout).count()});
}

/// If the nodes are not known, MPI takes each rank to be alone on its host, which is slower, and
/// PMIx cannot work. A node that does not describe itself has another program, or another --mpi.
void MpiServer::on_nodes(const NodeExchange::Gathered& gathered) {
  pmi::Setting setting{.job = space_name(epoch_.job, epoch_.place.epoch),
                       .first_rank = epoch_.place.first_rank,
                       .local_size = epoch_.place.local_size,
                       .world_size = epoch_.place.world_size};
  const auto* blobs = std::get_if<std::vector<Bytes>>(&gathered);
  const auto nodes = blobs != nullptr ? read_nodes(*blobs) : std::nullopt;
  if (const auto* why = std::get_if<std::string>(&gathered)) {
    listener_.on_mpi_said(
        "not all nodes have told of their MPI ranks, which need the same program "
        "and --mpi on all nodes: " +
        *why);
  }
  std::vector<int> sizes;
  for (const auto& node : nodes.value_or(std::vector<NodeOfJob>())) sizes.push_back(node.ranks);
  const std::string mapping = pmi::process_mapping(sizes);
  if (!sizes.empty() && !mapping.empty()) setting.given.emplace("PMI_process_mapping", mapping);
  ranks_.emplace(std::move(setting));
  if (!pmix_ || !nodes) return;
  pmix_->begin(pmix_job(space_name(epoch_.job, epoch_.place.epoch), *nodes, epoch_.place),
               std::ranges::count(*nodes, epoch_.host, &NodeOfJob::host) > 1);
}

std::string MpiServer::name(int rank) const {
  return "rank " + std::to_string(epoch_.place.first_rank + rank);
}

void MpiServer::serve(int rank, unique_fd ours) {
  set_nonblocking(ours.get(), true);
  auto line = std::make_shared<Line>(io_);
  line->socket.assign(ours.release());
  lines_[rank] = std::move(line);
  read_when_ready(rank);
}

void MpiServer::read_when_ready(int rank) {
  const auto line = lines_.at(rank);
  line->socket.async_wait(asio::posix::stream_descriptor::wait_read,
                          [this, rank, weak = std::weak_ptr(line)](auto error) {
                            if (error || weak.expired()) return;
                            read_all(rank);
                            if (!weak.expired()) read_when_ready(rank);
                          });
}

void MpiServer::read_all(int rank) {
  for (;;) {
    const auto line = lines_.find(rank);
    if (line == lines_.end()) return;
    std::array<char, 16u << 10> bytes;
    const ssize_t size =
        ::recv(line->second->socket.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (size <= 0) {
      lines_.erase(line);
      return;
    }
    const auto taken = static_cast<std::size_t>(size);
    carry_out(ranks_->received(rank, {bytes.data(), taken}));
    if (taken < bytes.size()) return;  // That was all.
  }
}

ExitStatus MpiServer::ended(int rank, const ExitStatus& status) {
  if (!ranks_) return status;
  read_all(rank);
  const bool inside = ranks_->is_inside(rank) || (pmix_ && pmix_->is_inside(rank));
  if (inside && status.succeeded()) {
    listener_.on_mpi_said(name(rank) +
                          " exited with 0 between MPI_Init and MPI_Finalize; the other ranks would "
                          "wait for it in vain");
    listener_.on_gave_up(rank, exit_code::failed);
  }
  carry_out(ranks_->ended(rank));
  lines_.erase(rank);
  const auto aborted = aborted_.find(rank);
  return aborted == aborted_.end() ? status : ExitStatus{.code = aborted->second};
}

/// The code of MPI_Abort becomes a process's exit code, as exit() takes it, but never success.
void MpiServer::abort(int rank, int code) {
  const int seen = code & 0xff;
  aborted_[rank] = seen != 0 ? seen : exit_code::failed;
  listener_.on_gave_up(rank, aborted_[rank]);
}

bool MpiServer::has_begun(int rank) const {
  return ranks_ && (ranks_->has_begun(rank) || (pmix_ && pmix_->has_begun(rank)));
}

bool MpiServer::was_used() const {
  for (int rank = 0; ranks_ && rank < epoch_.place.local_size; ++rank) {
    if (has_begun(rank)) return true;
  }
  return false;
}

void MpiServer::carry_out(pmi::Effects effects) {
  for (auto& effect : effects) {
    if (auto* sent = std::get_if<pmi::Send>(&effect)) {
      send(sent->rank, sent->bytes);
    } else if (auto* fence = std::get_if<pmi::Fence>(&effect)) {
      exchange_.all_gather(
          "mpi/fence", fence->number, std::move(fence->pairs),
          [this, number = fence->number](const NodeExchange::Gathered& gathered) {
            if (const auto* all = std::get_if<std::vector<Bytes>>(&gathered)) {
              return carry_out(ranks_->fenced(number, *all));
            }
            carry_out(ranks_->fence_failed(number, std::get<std::string>(gathered)));
          });
    } else if (auto* aborted = std::get_if<pmi::Abort>(&effect)) {
      abort(aborted->rank, aborted->exit_code);
    } else if (auto* say = std::get_if<pmi::Say>(&effect)) {
      listener_.on_mpi_said(say->sentence);
    } else if (auto* hang_up = std::get_if<pmi::HangUp>(&effect)) {
      lines_.erase(hang_up->rank);
    }
  }
}

void MpiServer::send(int rank, std::string_view bytes) {
  const auto found = lines_.find(rank);
  if (found == lines_.end()) return;
  const auto line = found->second;
  const bool waits = !line->unsent.empty();
  line->unsent.append(bytes);
  if (line->unsent.size() > unsent_bytes_max) {
    lines_.erase(found);
    return;
  }
  if (!waits) flush(rank);
}

void MpiServer::flush(int rank) {
  const auto found = lines_.find(rank);
  if (found == lines_.end()) return;
  const auto line = found->second;
  auto& unsent = line->unsent;
  while (!unsent.empty()) {
    const ssize_t size = ::send(line->socket.native_handle(), unsent.data(), unsent.size(),
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) break;
    unsent.erase(0, static_cast<std::size_t>(size));
  }
  // If the rank is gone, reading will show it.
  if (unsent.empty() || errno == EPIPE) return;
  line->socket.async_wait(asio::posix::stream_descriptor::wait_write,
                          [this, rank, weak = std::weak_ptr(line)](auto error) {
                            if (!error && !weak.expired()) flush(rank);
                          });
}

}  // namespace dlaunch::launcher
