#pragma once

#include "runtime/store/relay/uplink.hpp"
#include "tests/support/store_server.hpp"

#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace dlaunch::test {

/// An Uplink on a loop that the test itself turns, and what it said.
class UplinkPeer : private store::Uplink::Events {
 public:
  struct Trouble {
    Errc code{};
    std::string sentence;
  };

  static store::Uplink::Options options(Address to, std::uint64_t session = 4711) {
    store::Uplink::Options result;
    result.host = to.host();
    result.port = to.port();
    result.hello.session = session;
    result.backoff_min = 5ms;
    result.backoff_max = 50ms;
    return result;
  }
  explicit UplinkPeer(store::Uplink::Options options) {
    store::Uplink::Events& self = *this;
    uplink.emplace(io, std::move(options), self);
    uplink->start();
  }

  /// Turns the loop until it holds; false after 20 s.
  template <class Holds>
  bool until(Holds holds) {
    const auto deadline = soon();
    while (!holds()) {
      if (Clock::now() >= deadline) return false;
      io.run_one_for(50ms);
      io.restart();
    }
    return true;
  }
  bool welcomed(int times = 1) {
    return until([&] { return welcomes >= times && uplink->connected(); });
  }
  bool troubled(const std::string& with) {
    return until([&] {
      for (const Trouble& trouble : troubles) {
        if (trouble.sentence.find(with) != std::string::npos) return true;
      }
      return false;
    });
  }

  /// Sends a request; its answer, as text, lands in `to`.
  template <class Message>
  std::uint64_t ask(const Message& message, std::vector<std::string>& to) {
    Bytes payload;
    wire::encode(payload, message);
    return uplink->request(Message::type, 0, payload,
                           [&to](const wire::FrameHeader& header, BytesView answer) {
                             to.push_back(shown(header.type, answer));
                           });
  }
  template <class Message>
  std::string ask(const Message& message) {
    std::vector<std::string> answers;
    ask(message, answers);
    return until([&] { return !answers.empty(); }) ? answers.front() : "no answer";
  }

  static std::string shown(wire::Type type, BytesView payload) {
    switch (type) {
      case wire::Type::done:
        return "done";
      case wire::Type::absent:
        return "absent";
      case wire::Type::number:
        return "number " + std::to_string(wire::decode<wire::Number>(payload)->value);
      case wire::Type::found:
        return "found " + std::string(as_text(wire::decode<wire::Found>(payload)->value));
      case wire::Type::popped: {
        const auto popped = wire::decode<wire::Popped>(payload);
        return "popped " + std::string(popped->value ? as_text(*popped->value) : "-");
      }
      case wire::Type::changed: {
        const auto changed = wire::decode<wire::Changed>(payload);
        return "changed " + std::string(changed->value ? as_text(*changed->value) : "-");
      }
      case wire::Type::failed: {
        const auto failed = wire::decode<wire::Failed>(payload);
        return std::string("failed ") + to_string(failed->code) + ": " + failed->sentence;
      }
      default:
        return "type " + std::to_string(static_cast<unsigned>(type));
    }
  }

  boost::asio::io_context io{1};
  std::optional<store::Uplink> uplink;
  int welcomes = 0;
  std::vector<Trouble> troubles, refusals;
  std::vector<std::string> pushes;
  std::function<void()> on_trouble_do, on_welcome_do;

 private:
  void on_welcome(const wire::Welcome&) override {
    ++welcomes;
    if (on_welcome_do) on_welcome_do();
  }
  void on_push(const wire::FrameHeader&, BytesView payload) override {
    pushes.emplace_back(as_text(payload));
  }
  void on_trouble(const Error& error, Clock::time_point) override {
    troubles.push_back({error.errc(), error.what()});
    if (on_trouble_do) on_trouble_do();
  }
  void on_refused(const Error& error) override { refusals.push_back({error.errc(), error.what()}); }
};

}  // namespace dlaunch::test
