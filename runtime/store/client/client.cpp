#include "runtime/store/client/client.hpp"

#include "runtime/store/client/link.hpp"

#include <utility>

namespace dlaunch::store {

Client::Client(unique_fd connected, Options options, OnPush on_push, Clock::time_point deadline)
    : Client(new Link(std::move(connected), std::move(options), std::move(on_push), deadline)) {}
Client::Client(Link* owned) : JobStore(std::unique_ptr<Carrier>(owned)), link_(*owned) {}

const wire::Welcome& Client::welcome() const { return link_.welcome(); }
int Client::fd() const { return link_.fd(); }
void Client::dispatch() { link_.dispatch(); }
void Client::tell(wire::Type type, BytesView payload) noexcept {
  try {
    link_.tell(type, payload);
  } catch (const std::exception&) {
    // The connection is gone, which the next call reports: a message without an answer cannot.
  }
}

}  // namespace dlaunch::store
