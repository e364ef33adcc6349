#include "launcher/machine/probe.hpp"

#include "runtime/base/text/values.hpp"

#include <utility>

namespace dlaunch::launcher {
namespace {

using namespace std::chrono_literals;

/// A filtered address never answers, so each try has an end.
constexpr auto probe_timeout = 3s;

}  // namespace

Probe::Probe(boost::asio::io_context& io, std::vector<std::string> addresses, Found found)
    : addresses_(std::move(addresses)), timer_(io), found_(std::move(found)) {
  for (std::size_t i = 0; i < addresses_.size(); ++i) tries_.push_back({Tcp::socket(io)});
}

std::shared_ptr<Probe> Probe::start(boost::asio::io_context& io, std::vector<std::string> addresses,
                                    Found found) {
  const std::shared_ptr<Probe> probe(new Probe(io, std::move(addresses), std::move(found)));
  probe->timer_.expires_after(probe_timeout);
  probe->timer_.async_wait([weak = std::weak_ptr(probe)](auto error) {
    const auto self = weak.lock();
    if (self && !error) self->judge(true);
  });
  for (std::size_t i = 0; i < probe->tries_.size(); ++i) probe->begin(i);
  return probe;
}

void Probe::begin(std::size_t index) {
  Try& attempt = tries_[index];
  const auto read = read_endpoint(addresses_[index]);
  const auto* endpoint = std::get_if<EndpointAsked>(&read);
  boost::system::error_code error;
  // --local-addr may be a name. A node that publishes a name first wants it used.
  const auto address = boost::asio::ip::make_address(endpoint ? endpoint->host : "", error);
  const Tcp::endpoint to(address, endpoint ? endpoint->port.value_or(0) : std::uint16_t{0});
  auto done = [weak = weak_from_this(), index](const boost::system::error_code& why) {
    const auto self = weak.lock();
    if (!self || why == boost::asio::error::operation_aborted) return;
    self->tries_[index].reached = !why;
    self->tries_[index].failed = static_cast<bool>(why);
    self->judge(false);
  };
  if (error) {
    attempt.reached = endpoint != nullptr;
    attempt.failed = endpoint == nullptr;
    boost::asio::post(timer_.get_executor(), [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->judge(false);
    });
    return;
  }
  attempt.socket.async_connect(to, std::move(done));
}

/// Chooses the first address that answers, once all before it have failed.
void Probe::judge(bool timed_out) {
  if (!found_) return;
  std::string reached;
  for (std::size_t i = 0; i < tries_.size(); ++i) {
    if (tries_[i].reached) {
      reached = addresses_[i];
      break;
    }
    if (!tries_[i].failed && !timed_out) return;
  }
  if (reached.empty()) reached = addresses_.front();
  timer_.cancel();
  std::exchange(found_, nullptr)(reached);
}

}  // namespace dlaunch::launcher
