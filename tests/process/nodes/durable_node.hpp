#pragma once

#include "tests/process/daemon.hpp"
#include "tests/support/agent_peer.hpp"
#include "tests/support/temporary_folder.hpp"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::process_test {

namespace message = rendezvous::message;

/// The daemon's port, and how often it was started. Any thread may ask.
class Gate {
 public:
  void open(const Address& at) {
    const std::lock_guard lock(mutex_);
    at_ = at;
    ++starts_;
    opened_.notify_all();
  }
  /// Waits for a later start than this one.
  std::pair<int, Address> after(int start) {
    std::unique_lock lock(mutex_);
    const bool opened = opened_.wait_until(lock, test::soon(), [&] { return starts_ > start; });
    CHECK_MESSAGE(opened, "the connection broke, and the daemon was not started again");
    return {starts_, at_};
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  int starts_ = 0;
  Address at_;
};

/// A node of a job that comes back whenever the daemon does, and sends again what was not answered.
class DurableNode {
 public:
  DurableNode(Gate& gate, std::string job, std::uint64_t session, message::Join join)
      : gate_(gate), job_(std::move(job)), session_(session), join_(std::move(join)) {
    while (!come()) continue;
  }

  /// The answer, which points into this node until the next call; empty where there is none in 20
  /// s.
  template <class Answer, class Message>
  Answer ask(const Message& message) {
    Bytes out;
    wire::encode_frame(out, {0, {}, 0, ++request_, 0}, message);
    const auto type = answer_to(out);
    CHECK_MESSAGE(type == Answer::type, failure());
    return wire::decode<Answer>(answer_).value_or(Answer{});
  }
  /// The sentence with which it is refused; empty where it is not.
  template <class Message>
  std::string refusal(const Message& message) {
    Bytes out;
    wire::encode_frame(out, {0, {}, 0, ++request_, 0}, message);
    return answer_to(out) == wire::Type::failed ? failure() : "";
  }
  const message::Join& join() const { return join_; }
  std::uint64_t memory() const { return memory_; }
  void end() {
    Bytes payload, out;
    rendezvous::message::encode(payload, test::ended(join_.holding->epoch));
    wire::encode_frame(out, {0, message::WorkersEnded::type, 0, 0, 0}, payload);
    peer_->say(out);
    for (;;) {
      const auto [header, text] = peer_->frame();
      REQUIRE(header != wire::FrameHeader{});
      if (header.type == message::Finished::type) return;
    }
  }

 private:
  std::string failure() const {
    const auto failed = wire::decode<wire::Failed>(answer_);
    return failed ? std::string(failed->sentence) : "another type than was asked for";
  }
  wire::Type answer_to(const Bytes& request) {
    for (int tries = 0; tries < tries_max; ++tries) {
      peer_->say(request);
      for (;;) {
        auto [header, payload] = peer_->frame();
        if (header == wire::FrameHeader{} || payload.size() < header.length) break;
        if (header.request != request_) continue;  // Nobody asked for it.
        answer_ = std::move(payload);
        return header.type;
      }
      while (!come()) continue;
    }
    return {};
  }
  /// False where the daemon went while we came.
  bool come() {
    Address at;
    std::tie(start_, at) = gate_.after(start_);
    try {
      peer_.emplace(connect_tcp(at, test::soon()));
    } catch (const Error&) {
      return false;
    }
    peer_->say_hello(session_, job_);
    Bytes payload, out;
    rendezvous::message::encode(payload, join_);
    wire::encode_frame(out, {0, message::Join::type, 0, 0, 0}, payload);
    peer_->say(out);
    if (peer_->read(wire::preface_bytes).size() < wire::preface_bytes) return false;
    for (;;) {
      const auto [header, text] = peer_->frame();
      if (header == wire::FrameHeader{}) return false;
      if (header.type == wire::Type::welcome) {
        const auto welcome = wire::decode<wire::Welcome>(text);
        if (welcome) memory_ = welcome->memory;
        if (join_.holding) return true;
      }
      if (header.type != message::Admitted::type) continue;
      const auto admitted = message::decode<message::Admitted>(text);
      REQUIRE(admitted);
      join_.holding = admitted->admission;
      return true;
    }
  }

  static constexpr int tries_max = 1000;
  Gate& gate_;
  const std::string job_;
  const std::uint64_t session_;
  message::Join join_;
  std::optional<test::RawPeer> peer_;
  int start_ = 0;
  std::uint64_t request_ = 0, memory_ = 0;
  Bytes answer_;
};

inline Address address_of(const Daemon& daemon) {
  const std::string& at = daemon.endpoint();
  const auto colon = at.rfind(':');
  return resolve(at.substr(0, colon), static_cast<std::uint16_t>(std::stoi(at.substr(colon + 1))))
      .at(0);
}

/// The folder in which a daemon keeps its state, and the option that says so.
struct Kept {
  testing::TemporaryFolder folder;
  std::string path = (folder.path() / "state.db").string();
  std::vector<std::string> options = {"--state", "sqlite:" + path};
};

}  // namespace dlaunch::process_test
