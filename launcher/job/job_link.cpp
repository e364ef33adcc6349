#include "launcher/job/job_link.hpp"

#include "launcher/job/hosting.hpp"
#include "launcher/job/node_seat.hpp"
#include "launcher/job/sole_seat.hpp"
#include "launcher/machine/probe.hpp"
#include "launcher/machine/reachable.hpp"
#include "launcher/request/option_values.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/identity.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text_hash.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include <boost/asio/post.hpp>

namespace dlaunch::launcher {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr auto look_up_pause = 500ms;
/// The longest pause between two tries at a port of this host that somebody else has.
constexpr auto held_port_pause = 500ms;
/// How long the host waits for the other nodes to hear of the end.
constexpr auto farewell_timeout = 5s;
/// A rendezvous in this process is never silent without us, so the limit is out of reach.
constexpr auto own_silence_max = std::chrono::hours(24 * 365);
/// The limit of lines about strangers that the hosted rendezvous prints within a period.
constexpr int logged_max = 16;
constexpr auto log_period = 10s;

MasterPortAsked port_asked(const AgentTask& task) {
  MasterPortAsked asked;
  asked.port = task.spec.master_port;
  asked.insisted = task.spec.master_port_insisted;
  // A lone worker may host its own store, or spawn its own workers, under that port, seconds from
  // now. Until then the usual port would look free to every such job, so each gets another one.
  asked.listen = has_agent_store(task.spec, task.workers);
  if (!asked.listen && !asked.insisted) asked.port = 0;
  return asked;
}

/// Whether the workers' store is at the rendezvous' own port, as under --master-addr.
bool shares_port(const JobSpec& spec) {
  return spec.meeting.kind == Meeting::Kind::fixed && spec.torch_store == TorchStore::agent;
}

rendezvous::Launch launch_of(const JobSpec& spec) {
  rendezvous::Launch launch;
  std::string line;
  for (const Part* part : spec.parts()) {
    line += part->module ? "module" : "program";
    // Each word is hashed with its zero byte, so that "ab c" differs from "a bc".
    for (const auto& argument : part->program) line.append(argument.c_str(), argument.size() + 1);
  }
  launch.line = text_hash(line);
  if (!spec.scheduler_job.empty()) launch.start = text_hash(spec.scheduler_job);
  return launch;
}

wire::Hello hello_of(const AgentTask& task) {
  wire::Hello hello;
  hello.session = random_number();
  hello.job = task.spec.job_id.value_or("");
  return hello;
}

/// Why this node does not host although nobody listens: the port is in use. Else empty.
std::string hosting_problem(const std::vector<Address>& held, const Error& trouble) {
  const std::string_view said = trouble.what();
  for (const Address& address : held) {
    if (said == connect_error(address, ECONNREFUSED).what()) {
      return listen_error(address, EADDRINUSE).what();
    }
  }
  return "";
}

}  // namespace

JobLink::JobLink(asio::io_context& io, const AgentTask& task, SeatListener& listener)
    : io_(io),
      task_(task),
      listener_(listener),
      alone_(task.spec.meeting.kind == Meeting::Kind::one_node),
      resolver_(io),
      timer_(io) {
  if (!alone_) return;
  MasterPort taken = take_master_port(port_asked(task));
  master_port_ = taken.port;
  note_ = std::move(taken.note);
  if (taken.listener) store_listeners_.push_back(std::move(taken.listener));
}

JobLink::~JobLink() = default;

rendezvous::JobRules JobLink::rules() const {
  const JobSpec& spec = task_.spec;
  rendezvous::JobRules rules;
  rules.nodes_min = spec.nodes.least;
  rules.nodes_max = spec.nodes.most;
  rules.spares = spec.spares;
  rules.max_restarts = spec.max_restarts;
  rules.restart_window = spec.restart_window;
  rules.restart_backoff = {spec.restart_backoff.first, spec.restart_backoff.longest};
  rules.continue_on_failure = spec.continue_on_failure;
  rules.join_timeout = spec.rdzv_times.join;
  rules.last_call = spec.rdzv_times.last_call;
  rules.liveness = spec.rdzv_times.liveness();
  return rules;
}

void JobLink::start() {
  if (alone_) {
    seat_ = std::make_unique<SoleSeat>(io_, offer({}), rules(), listener_);
    if (!note_.empty()) listener_.on_standing(note_);
    return seat_->join();
  }
  deadline_ = deadline_after(task_.spec.rdzv_times.join);
  look_up();
}

// ---- Where the rendezvous is ----

void JobLink::look_up() {
  const Meeting& meeting = task_.spec.meeting;
  if (is_socket(meeting)) return on_addresses({});
  const auto asked = std::make_shared<bool>(true);
  timer_.expires_at(deadline_);
  timer_.async_wait([this, asked](auto error) {
    if (error || !std::exchange(*asked, false)) return;
    listener_.on_finished(
        {exit_code::unreachable, std::nullopt, lookup_sentence(task_.spec, trouble_, true)}, false);
  });
  resolver_.async_resolve(
      meeting.host, std::to_string(meeting.port), asio::ip::resolver_base::numeric_service,
      [this, asked](const boost::system::error_code& error, auto results) {
        if (error == asio::error::operation_aborted || !std::exchange(*asked, false)) return;
        timer_.cancel();
        if (error) return try_again_later(error.message());
        std::vector<Address> addresses;
        for (const auto& result : results) {
          const auto endpoint = result.endpoint();
          Address address;
          address.size = static_cast<socklen_t>(endpoint.size());
          std::memcpy(&address.storage, endpoint.data(), endpoint.size());
          addresses.push_back(address);
        }
        on_addresses(addresses);
      });
}

/// A name that cannot be resolved is tried again: on Kubernetes it often appears later.
void JobLink::try_again_later(const std::string& why) {
  if (Clock::now() >= deadline_) {
    return listener_.on_finished(
        {exit_code::unreachable, std::nullopt, lookup_sentence(task_.spec, why, true)}, false);
  }
  if (std::exchange(trouble_, why) != why) {
    listener_.on_standing(lookup_sentence(task_.spec, why, false));
  }
  timer_.expires_after(look_up_pause);
  timer_.async_wait([this](auto error) {
    if (!error) look_up();
  });
}

void JobLink::on_addresses(const std::vector<Address>& addresses) {
  auto decided = host_or_join(task_.spec, addresses);
  if (const auto* problem = std::get_if<HostingProblem>(&decided)) {
    return listener_.on_finished({problem->exit_code, std::nullopt, problem->sentence}, false);
  }
  if (auto* own = std::get_if<Listeners>(&decided)) return take_seat(std::move(*own), {});
  take_seat({}, std::get<JoinElsewhere>(decided));
}

/// Another program holds our port. Until a rendezvous has answered there it counts as none; when
/// the program ends, the port may become ours.
bool JobLink::host_instead(const std::vector<Address>& places) {
  Listeners own;
  try {
    own = bind_all_of(places);
  } catch (const Error&) {
    return false;  // No descriptor is left; connecting will say so.
  }
  if (own.empty()) return false;
  asio::post(io_, [this, own = std::move(own)]() mutable { change_to_host(std::move(own)); });
  return true;
}

void JobLink::change_to_host(Listeners own) {
  if (node_seat_->over()) return;
  node_seat_->withdraw();
  former_seat_ = std::move(seat_);
  listener_.on_standing("listening on " + dlaunch::local_address(own.front().get()).to_string() +
                        ", where the port is free now: this node hosts the rendezvous");
  take_seat(std::move(own), {});
}

void JobLink::take_seat(Listeners listeners, const JoinElsewhere& elsewhere) {
  const Meeting& meeting = task_.spec.meeting;
  NodeSeat::Options options;
  options.uplink.hello = hello_of(task_);
  options.uplink.key = task_.job_key;
  options.rules.job = rules();
  options.rules.heartbeat = task_.spec.rdzv_times.heartbeat;
  if (!listeners.empty()) {
    for (const auto& listener : listeners) hosted_at_.push_back(local_address(listener.get()));
    rendezvous::ServiceRules hosting;
    hosting.only_job = task_.job;
    open_service(std::move(listeners), std::move(hosting), shares_port(task_.spec));
    options.uplink.connected = connect_to_service();
    options.uplink.silence_max = own_silence_max;
    options.rules.peer = options.uplink.peer_name = "the rendezvous of this node";
    options.rules.hosts = true;
  } else {
    options.uplink.host = meeting.host;
    options.uplink.port = meeting.port;
    options.uplink.silence_max = options.rules.job.liveness.silence_max();
    options.uplink.backoff_max = options.rules.job.liveness.retry_pause_max();
    options.uplink.first_max = options.rules.job.join_timeout;
    options.rules.peer = options.uplink.peer_name + " at " + meeting_name(meeting);
    options.stand_by = [this] { return stand_by(); };
    options.take_over = [this](const rendezvous::Takeover& from) { return take_over(from); };
    if (!elsewhere.held.empty()) {
      options.uplink.backoff_max = held_port_pause;
      options.host_instead = [this, places = elsewhere.places] { return host_instead(places); };
      options.hosting_problem = [held = elsewhere.held](const Error& trouble) {
        return hosting_problem(held, trouble);
      };
    }
  }
  const bool exposed = hosted_at_.empty() ? !is_socket(meeting) && !is_loopback_name(meeting.host)
                                          : !std::ranges::all_of(hosted_at_, &Address::is_loopback);
  if (exposed && !task_.job_key && task_.spec.nodes.most > 1 &&
      !std::exchange(told_of_no_secret_, true)) {
    listener_.on_standing("this job has no secret: whoever can reach " + meeting_name(meeting) +
                          " can take part in it (--secret-file)");
  }
  auto seat = std::make_unique<NodeSeat>(
      io_, std::move(options), [this](const Address& own) { return offer(own); }, listener_);
  node_seat_ = seat.get();
  seat_ = std::move(seat);
  seat_->join();
}

void JobLink::open_service(Listeners own, rendezvous::ServiceRules hosting, bool c10d) {
  service_ = std::make_unique<rendezvous::Service>(
      io_, std::move(hosting), [this](const auto& line) { on_service_log(line); });
  if (task_.job_key) {
    // This rendezvous has one job, so every name gets that job's key.
    service_->server().ask_for(
        {.keys = {{.key_of = [key = *task_.job_key](std::string_view) { return key; }}}});
  }
  for (auto& one : own) service_->listen(std::move(one), {.native = true, .c10d = c10d});
}

unique_fd JobLink::connect_to_service() {
  auto [ours, theirs] = socket_pair();
  service_->adopt(std::move(theirs));
  return std::move(ours);
}

/// Binds the port of a successor long before it may be needed.
std::string JobLink::stand_by() {
  if (service_) return "";
  try {
    if (!standby_) standby_ = listen_tcp(resolve(host_, 0).front());
  } catch (const Error&) {
    return "";  // Another node may be ready.
  }
  return host_port(host_, dlaunch::local_address(standby_.get()).port());
}

/// Hosts the rendezvous in place of a lost node. PyTorch's store stays where it is bound.
unique_fd JobLink::take_over(const rendezvous::Takeover& from) {
  rendezvous::ServiceRules hosting;
  hosting.only_job = node_seat_->job();
  hosting.taken_over = from;
  Listeners own;
  own.push_back(std::move(standby_));
  open_service(std::move(own), std::move(hosting), false);
  return connect_to_service();
}

/// Only this node can say whom the hosted rendezvous turns away. Lines are limited, so that a
/// stranger who keeps trying does not fill the terminal.
void JobLink::on_service_log(const rendezvous::LogLine& line) {
  if (line.told || line.level < rendezvous::LogLine::Level::warning) return;
  const auto now = Clock::now();
  if (now >= log_again_) {
    log_again_ = now + log_period;
    logged_ = 0;
  }
  if (logged_++ < logged_max) listener_.on_standing(line.sentence);
}

// ---- What this node brings, and what it gets ----

rendezvous::NodeOffer JobLink::offer(const Address& own) {
  const JobSpec& spec = task_.spec;
  rendezvous::NodeOffer offer;
  offer.host = task_.machine.hostname;
  offer.id = task_.node_id;
  offer.workers = task_.workers;
  offer.share = share();
  if (alone_) return offer;

  offer.rank_hint = spec.node_rank;
  // Under --master-addr the node that hosts is node rank 0, whether its option or its address says
  // so.
  if (!hosted_at_.empty() && spec.meeting.kind == Meeting::Kind::fixed) offer.rank_hint = 0;
  offer.launch = launch_of(spec);
  const Address& reached = hosted_at_.empty() ? own : hosted_at_.front();
  const auto hosts = reachable_hosts(spec, reached);
  host_ = hosts.front();
  if (shared_server() != nullptr) {
    for (const auto& at : hosted_at_) {
      // What is valid on one link only means something else to others.
      const bool said = offer.store_addresses.empty() || !at.is_link_local();
      if (said) offer.store_addresses.push_back(at.to_string());
    }
  } else {
    offer.store_addresses = bind_store(hosts);
  }
  if (!spec.local_addr.empty()) {
    const auto port = shared_server() ? hosted_at_.front().port() : master_port_;
    offer.store_addresses.insert(offer.store_addresses.begin(), host_port(spec.local_addr, port));
  }
  return offer;
}

/// Where /proc does not identify the kernel, the host's name is used.
rendezvous::HostShare JobLink::share() {
  rendezvous::HostShare share;
  share.kernel = kernel_id();
  if (share.kernel.empty()) share.kernel = task_.machine.hostname;
  share.processors = task_.machine.processors;
  auto& cores = share.processors.cores;
  if (cores.size() > rendezvous::message::core_ranges_max) cores.clear();
  if (alone_ || task_.spec.shared_memory == SharedMemory::node) return share;
  if (memory_door_.name.empty()) memory_door_ = rendezvous::MemoryDoor::open();
  share.lends_at = memory_door_.name;
  if (!share.lends_at.empty()) share.memory = memory_id();
  return share;
}

/// Binds one port at all addresses. Rank 0's agent announces the port, so any will do, unless one
/// was asked for.
std::vector<std::string> JobLink::bind_store(const std::vector<std::string>& hosts) {
  const JobSpec& spec = task_.spec;
  const bool insisted = spec.master_port_insisted && spec.meeting.kind == Meeting::Kind::endpoint;
  const bool listen = has_agent_store(spec, task_.workers);
  MasterPort first = take_master_port(
      {hosts.front(), insisted ? spec.master_port : std::uint16_t{0}, insisted, listen});
  master_port_ = first.port;
  if (!listen) return {host_port(hosts.front(), master_port_)};
  store_listeners_.push_back(std::move(first.listener));
  std::vector<std::string> bound{host_port(hosts.front(), master_port_)};
  for (std::size_t i = 1; i < hosts.size(); ++i) {
    try {
      store_listeners_.push_back(listen_tcp(resolve(hosts[i], master_port_).front()));
      bound.push_back(host_port(hosts[i], master_port_));
    } catch (const Error&) {
      // Another program has the port at this address; the others are told of the addresses we have.
    }
  }
  return bound;
}

void JobLink::place(const rendezvous::Admission& admission,
                    std::function<void(Assignment)> placed) {
  probe_.reset();
  const auto& addresses = *admission.store_addresses;
  const std::string first = addresses.empty() ? "" : addresses.front();
  if (admission.node_rank == 0 || addresses.size() < 2) {
    return placed(assignment(admission, first));
  }
  probe_ = Probe::start(io_, addresses, [this, admission, placed](const std::string& reached) {
    placed(assignment(admission, reached));
  });
}

Assignment JobLink::assignment(const rendezvous::Admission& admission,
                               const std::string& master) const {
  Assignment assignment;
  assignment.job = node_seat_ ? node_seat_->job() : task_.job;
  assignment.incarnation = admission.incarnation;
  assignment.epoch = admission.epoch;
  assignment.attempt = admission.attempt;
  assignment.node_rank = admission.node_rank;
  assignment.node_count = admission.node_count;
  assignment.first_rank = admission.first_rank;
  assignment.local_size = admission.local_size;
  assignment.world_size = admission.world_size;
  assignment.master_port = master_port_;
  assignment.agent_store = has_agent_store(task_.spec, task_.workers);
  if (!master.empty()) {
    const auto read = read_endpoint(master);
    if (const auto* endpoint = std::get_if<EndpointAsked>(&read)) {
      assignment.master_addr = endpoint->host;
      assignment.master_port = endpoint->port.value_or(0);
    }
  }
  return assignment;
}

QuestionLine* JobLink::line() { return node_seat_; }

bool JobLink::is_heard() const { return !node_seat_ || node_seat_->uplink().connected(); }

store::Uplink* JobLink::uplink() { return node_seat_ ? &node_seat_->uplink() : nullptr; }

store::Server* JobLink::shared_server() {
  return !hosted_at_.empty() && shares_port(task_.spec) ? &service_->server() : nullptr;
}

void JobLink::close(std::function<void()> closed) {
  probe_.reset();
  timer_.cancel();
  resolver_.cancel();
  if (node_seat_) node_seat_->uplink().close();
  if (!service_) return closed();
  closed_ = std::move(closed);
  const auto once = [this] {
    timer_.cancel();
    if (auto call = std::exchange(closed_, nullptr)) call();
  };
  timer_.expires_after(farewell_timeout);
  timer_.async_wait([once](auto error) {
    if (!error) once();
  });
  service_->drain(once, farewell_timeout);
}

}  // namespace dlaunch::launcher
