#include "rendezvous/service/job_host.hpp"

#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text_hash.hpp"

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <utility>

#include <boost/asio/post.hpp>
#include <fcntl.h>

namespace dlaunch::rendezvous {
namespace {

constexpr int refused_clients_told = 4;

/// Abstract names are visible to everyone in the network namespace; a random one cannot be taken
/// beforehand.
std::string random_name() { return "@dlaunch-" + random_hex(24); }

}  // namespace

JobHost::JobHost(boost::asio::io_context& io, JobIdentity identity, JobObserver& observer,
                 store::Uplink* upstream, MemoryDoor door)
    : io_(io),
      identity_(std::move(identity)),
      observer_(observer),
      socket_name_(random_name()),
      listener_(listen_unix(socket_name_)),
      memory_(io_, std::move(door),
              [this](const auto& why, bool is_common) { warn_of_memory(why, is_common); }) {
  if (upstream != nullptr) relay_.emplace(io_, *upstream);
  plan_memory();
  begin_serving();
}

JobHost::~JobHost() { stop(); }

void JobHost::stop() {
  memory_.stop();
  native_->stop();
  if (c10d_) c10d_->stop();
}

std::unique_ptr<store::Server> JobHost::make_server() {
  store::Host& self = *this;
  auto server = std::make_unique<store::Server>(io_, self);
  server->on_slow_reader([this](store::ConnectionId who, const std::string& peer) {
    const auto member = attempt_.by_connection.find(who);
    const std::string name = member == attempt_.by_connection.end()
                                 ? "a client"
                                 : "rank " + std::to_string(member->second);
    observer_.on_warning(store::slow_reader_text(name, peer));
  });
  return server;
}

/// Begins a new server. The name is bound once, and each attempt's server gets its own descriptor
/// for it, at which only processes of the same user are served.
void JobHost::begin_serving() {
  native_ = make_server();
  if (relay_) {
    relay_->begin_epoch({.epoch = identity_.epoch,
                         .first_rank = identity_.first_rank,
                         .local_size = identity_.local_size,
                         .world_size = identity_.world_size},
                        *native_);
  }
  unique_fd listener(::fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0));
  if (!listener) throw Error(Errc::internal, "out of descriptors: " + errno_text(errno));
  native_->listen(std::move(listener), {.native = true, .c10d = false});
}

void JobHost::serve_c10d(unique_fd listener) {
  // This server speaks only PyTorch's protocol: native clients do not use the advertised port.
  if (!c10d_) {
    c10d_ = make_server();
    c10d_->on_slow_reader([this](store::ConnectionId, const std::string& peer) {
      observer_.on_warning(store::slow_reader_text("a client of PyTorch's store", peer));
    });
    hear_refused_clients(*c10d_);
  }
  c10d_->listen(std::move(listener), {.native = false, .c10d = true});
}

void JobHost::share_c10d(store::Server& server) {
  shared_c10d_ = &server;
  hear_refused_clients(server);
}

/// Reports refused clients, but not each one: all ranks may make the same mistake.
void JobHost::hear_refused_clients(store::Server& server) {
  server.on_refused_c10d([this, alive = std::weak_ptr(alive_)](
                             const Address& peer, const Address& own, const std::string& why) {
    if (alive.expired() || attempt_.refused_clients >= refused_clients_told) return;
    ++attempt_.refused_clients;
    observer_.on_refused_client(peer, own, why);
  });
}

void JobHost::serve_c10d_to(const std::optional<std::vector<std::string>>& hosts) {
  if (c10d_) c10d_->restrict_c10d(hosts);
  if (shared_c10d_) shared_c10d_->restrict_c10d(hosts);
}

std::vector<store::Server::C10dWaiting> JobHost::c10d_waiting() const {
  std::vector<store::Server::C10dWaiting> all;
  for (const store::Server* server : {c10d_.get(), shared_c10d_}) {
    if (server == nullptr) continue;
    for (auto& each : server->c10d_waiting()) all.push_back(std::move(each));
  }
  return all;
}

void JobHost::begin_attempt(JobIdentity identity) {
  identity_ = std::move(identity);
  native_->stop();
  attempt_ = {};
  plan_memory();
  begin_serving();
  if (c10d_) c10d_->renew_c10d();
  if (shared_c10d_) shared_c10d_->renew_c10d();
}

void JobHost::expect(int rank, unique_fd control) {
  attempt_.expected[native_->adopt(std::move(control))] = rank;
}

void JobHost::publish_loss(int rank, const std::string& host, const Departure& how) {
  // Said again after the agent's connection broke.
  if (std::ranges::any_of(attempt_.losses, [&](const auto& loss) { return loss.rank == rank; }))
    return;
  attempt_.losses.push_back({.rank = rank, .host = host, .how = how});
  for (const auto& [member, where] : attempt_.by_rank) {
    if (member != rank) tell(where.connection, attempt_.losses.back());
  }
  // After the news, so that whoever waits in a barrier knows by then who is missing.
  const std::string why = "on " + host + " is lost: " + text_of(how);
  if (relay_) {
    relay_->lose_contributor(rank, "rank " + std::to_string(rank) + " " + why);
  } else {
    native_->lose({rank}, identity_.world_size, why);
  }
}

void JobHost::lose_store(const std::string& why) {
  if (relay_) relay_->lose_store("the job's store is gone: " + why);
}

void JobHost::tell_doing(int rank, const wire::Doing& doing) {
  const auto member = attempt_.by_rank.find(rank);
  if (member != attempt_.by_rank.end()) tell(member->second.connection, doing);
}

std::variant<wire::Welcome, store::Host::Refusal> JobHost::admit(store::ConnectionId who,
                                                                 const wire::Hello& hello) {
  if (auto no = objection(who, hello)) return std::move(*no);
  if (hello.member) {
    const int rank = hello.member->rank;
    // The same session may come on a new connection; the server then ends the old one.
    if (const auto old = attempt_.by_rank.find(rank); old != attempt_.by_rank.end()) {
      attempt_.by_connection.erase(old->second.connection);
    }
    attempt_.by_rank[rank] = {who, hello.session, hello.member->pid};
    attempt_.by_connection[who] = rank;
    // After the welcome, which is sent when we return.
    boost::asio::post(io_, [this, rank, who, alive = std::weak_ptr(alive_)] {
      if (alive.expired() || !attempt_.by_connection.contains(who)) return;
      if (identity_.world_size < 2) return welcome(who, rank);
      memory_.when_known([this, rank, who] { welcome(who, rank); });
    });
  }
  return wire::Welcome{.job = identity_.job, .epoch = identity_.epoch, .memory = 0};
}

/// Grants a member that is still connected its descriptors, and tells it of losses.
void JobHost::welcome(store::ConnectionId who, int rank) {
  if (!attempt_.by_connection.contains(who)) return;
  grant(who);
  for (const auto& loss : attempt_.losses) tell(who, loss);
  observer_.on_joined(rank);
}

/// Why this member may not come in.
std::optional<store::Host::Refusal> JobHost::objection(store::ConnectionId who,
                                                       const wire::Hello& hello) const {
  if (!hello.job.empty() && hello.job != identity_.job) {
    return Refusal{Errc::refused, "this agent serves the job " + in_quotes(identity_.job) +
                                      ", not " + in_quotes(hello.job)};
  }
  if (!hello.member) return std::nullopt;
  const auto& member = *hello.member;
  const std::string name = "rank " + std::to_string(member.rank);
  if (member.world_size != identity_.world_size) {
    return Refusal{Errc::mismatch, name + " believes in a world of " +
                                       std::to_string(member.world_size) + ", this job's has " +
                                       std::to_string(identity_.world_size)};
  }
  const int last = identity_.first_rank + identity_.local_size - 1;
  if (member.rank < identity_.first_rank || member.rank > last) {
    return Refusal{Errc::refused, name + " does not live here; this agent's ranks are " +
                                      std::to_string(identity_.first_rank) + " to " +
                                      std::to_string(last)};
  }
  if (const auto own = attempt_.expected.find(who);
      own != attempt_.expected.end() && own->second != member.rank) {
    return Refusal{Errc::refused, "this control socket is that of rank " +
                                      std::to_string(own->second) + ", not of " + name +
                                      "; was RANK changed?"};
  }
  const auto present = attempt_.by_rank.find(member.rank);
  if (present != attempt_.by_rank.end() &&
      (hello.session == 0 || present->second.session != hello.session)) {
    const bool is_same = present->second.pid == member.pid;
    return Refusal{Errc::refused,
                   name + (is_same ? " is already here, by this very process: it joins its world "
                                     "once, and keeps that World"
                                   : " is already here: two processes claim to be it")};
  }
  return std::nullopt;
}

void JobHost::grant(store::ConnectionId to) {
  wire::Grant message;
  message.report_grace_ms = static_cast<std::uint32_t>(identity_.failure_grace.count());
  if (identity_.data_key) {
    const auto key = identity_.data_key->bytes();
    message.data_key.assign(key.begin(), key.end());
  }
  std::vector<unique_fd> fds;
  if (identity_.world_size > 1) {
    try {
      fds.push_back(listen_tcp(resolve(identity_.mesh_host, 0).front()));
      message.listener = true;
    } catch (const Error&) {
      // We are out of descriptors; the worker, which may not be, binds a listener of its own.
    }
  }
  if (Segment* const shared = memory_.segment()) {
    unique_fd copy(::fcntl(shared->fd(), F_DUPFD_CLOEXEC, 0));
    message.segment = copy.get() >= 0;
    if (copy) fds.push_back(std::move(copy));
  }
  tell(to, message, std::move(fds));
  wipe(message.data_key);
}

void JobHost::plan_memory() {
  MemoryPlan plan;
  plan.incarnation = identity_.incarnation;
  plan.own.job = text_hash(identity_.job);
  plan.own.epoch = identity_.epoch;
  plan.own.oversubscribed = identity_.crowded;
  plan.own.world_ranks.resize(static_cast<std::size_t>(identity_.local_size));
  std::iota(plan.own.world_ranks.begin(), plan.own.world_ranks.end(), identity_.first_rank);
  plan.common = identity_.memory;
  plan.key = identity_.data_key;
  memory_.begin(std::move(plan));
}

void JobHost::warn_of_memory(const std::string& why, bool is_common) {
  const std::string ranks = "the ranks on " + identity_.host;
  if (is_common) {
    warn(why + "; " + ranks + " reach those of the host's other nodes over TCP");
  } else if (identity_.local_size == 1) {
    warn(why + "; dlaunch will not see what the rank on " + identity_.host + " does");
  } else {
    warn(why + "; " + ranks + " go on without it, over TCP");
  }
}

/// Passes on the first warning of an attempt: if one rank lacks something, its neighbours often do,
/// too.
void JobHost::warn(const std::string& sentence) {
  if (!std::exchange(attempt_.has_warned, true)) observer_.on_warning(sentence);
}

void JobHost::tell(store::ConnectionId to, const auto& message, std::vector<unique_fd> fds) {
  native_->push(to, std::decay_t<decltype(message)>::type, wire::payload_of(message),
                std::move(fds));
}

void JobHost::on_message(store::ConnectionId who, const wire::FrameHeader& header,
                         BytesView payload) {
  const auto member = attempt_.by_connection.find(who);
  if (member == attempt_.by_connection.end()) return;  // A tool has nothing to report.
  if (header.type == wire::Type::report) {
    if (const auto report = wire::decode<wire::Report>(payload)) {
      observer_.on_reported(member->second, *report);
    }
  } else if (header.type == wire::Type::inquire) {
    if (const auto inquiry = wire::decode<wire::Inquire>(payload)) {
      observer_.on_inquired(member->second, inquiry->ranks);
    }
  } else if (header.type == wire::Type::abort) {
    if (const auto abort = wire::decode<wire::Abort>(payload)) {
      for (const auto& [rank, where] : attempt_.by_rank) {
        if (where.connection != who) tell(where.connection, *abort);
      }
    }
  } else if (header.type == wire::Type::warning) {
    if (const auto warning = wire::decode<wire::Warning>(payload)) {
      warn("rank " + std::to_string(member->second) + ": " + warning->sentence);
    }
  }
}

void JobHost::on_other_version(store::ConnectionId, std::uint32_t theirs) {
  observer_.on_warning(store::other_version_text("this node", theirs));
}

void JobHost::on_closed(store::ConnectionId who, bool) {
  attempt_.expected.erase(who);
  const auto member = attempt_.by_connection.find(who);
  if (member == attempt_.by_connection.end()) return;
  const int rank = member->second;
  attempt_.by_connection.erase(member);
  attempt_.by_rank.erase(rank);
  observer_.on_left(rank);
}

}  // namespace dlaunch::rendezvous
