#include "launcher/watch/inquiries.hpp"

#include "runtime/base/bytes.hpp"
#include "runtime/base/deadline.hpp"

#include <charconv>
#include <optional>

#include <boost/asio/post.hpp>

namespace dlaunch::launcher {
namespace {

/// After so long without a question it is looked whether one was missed.
constexpr auto catch_up_interval = std::chrono::seconds(30);
/// Questions that are kept, for agents that were not connected for a moment.
constexpr std::int64_t kept_questions = 16;
/// Questions of ours that are open at one time; more get our own answer only.
constexpr std::size_t askings_max = 8;
/// The store takes no longer value.
constexpr std::size_t answer_bytes_max = wire::value_bytes_max - 64;

const std::string counter = "dlaunch/agents/questions";
const std::string rings = "dlaunch/agents/rings";
std::string question_key(std::uint64_t number) { return counter + "/" + std::to_string(number); }
std::string answers_queue(int node) { return "dlaunch/agents/answers/" + std::to_string(node); }

/// The number at the front of "12 rest"; the rest stays.
std::optional<std::uint64_t> take_number(std::string_view& text) {
  const auto end = text.find(' ');
  if (end == std::string_view::npos) return std::nullopt;
  std::uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + end, number);
  if (read.ec != std::errc() || read.ptr != text.data() + end) return std::nullopt;
  text.remove_prefix(end + 1);
  return number;
}

/// A request that waits fails with its timeout, or since the store of the epoch is no more.
bool is_end_of_epoch(const wire::FrameHeader& header, BytesView payload) {
  if (header.type != wire::Type::failed) return false;
  const auto failed = wire::decode<wire::Failed>(payload);
  return !failed || failed->code != Errc::timeout;
}

wire::Timeout after(Clock::duration duration) {
  const auto now = Clock::now();
  return wire::Timeout::until(deadline_after(duration, now), now);
}

}  // namespace

Inquiries::Inquiries(boost::asio::io_context& io, Respond respond, std::function<void()> rung)
    : io_(io), respond_(std::move(respond)), rung_(std::move(rung)) {}

Inquiries::~Inquiries() { stop(); }

void Inquiries::begin(store::Uplink& uplink, const Assignment& assignment) {
  stop();
  uplink_ = &uplink;
  epoch_ = assignment.epoch;
  node_ = assignment.node_rank;
  nodes_ = assignment.node_count;
  next_ = 1;
  collecting_ = false;
  listen();
  if (node_ == 0) await_rings();
}

void Inquiries::stop() {
  if (uplink_ == nullptr) return;
  for (const auto number : std::exchange(requests_, {})) uplink_->forget(number);
  uplink_ = nullptr;
  while (!askings_.empty()) conclude(askings_.begin()->first);
}

/// Its answer is called once, and not after stop().
void Inquiries::request(const auto& message, Answer answer) {
  Bytes payload;
  wire::encode(payload, message);
  const auto number = std::make_shared<std::uint64_t>(0);
  *number = uplink_->request(
      std::decay_t<decltype(message)>::type, epoch_, payload,
      [this, number, answer = std::move(answer)](const auto& header, BytesView said) {
        requests_.erase(*number);
        if (answer) answer(header, said);
      });
  requests_.insert(*number);
}

// ---- What others ask ----

void Inquiries::listen() {
  request(wire::WaitGet{after(catch_up_interval), question_key(next_)},
          [this](const auto& header, BytesView payload) {
            if (header.type == wire::Type::found) {
              ++next_;
              if (const auto found = wire::decode<wire::Found>(payload)) {
                reply_to(as_text(found->value));
              }
              return listen();
            }
            if (!is_end_of_epoch(header, payload)) catch_up();
          });
}

/// A question may have been missed: while we were not connected, or since who asked it has ended
/// before it was there, or the store was forgotten.
void Inquiries::catch_up() {
  request(wire::Add{counter, 0}, [this](const auto&, BytesView payload) {
    const auto number = wire::decode<wire::Number>(payload);
    if (!number || number->value < 0) return;
    next_ = static_cast<std::uint64_t>(number->value) + 1;
    listen();
  });
}

/// "NODE QUESTION"; the answer is "NUMBER NODE DOCUMENT".
void Inquiries::reply_to(std::string_view question) {
  const std::uint64_t number = next_ - 1;
  const auto asker = take_number(question);
  if (!asker || *asker == static_cast<std::uint64_t>(node_)) return;
  const std::string answer =
      std::to_string(number) + " " + std::to_string(node_) + " " + respond_(std::string(question));
  if (answer.size() > answer_bytes_max) return;
  request(wire::Push{answers_queue(static_cast<int>(*asker)), as_bytes(answer)}, {});
}

// ---- What we ask ----

void Inquiries::ask(const std::string& question, Gathered gathered, Clock::duration patience) {
  const auto id = next_asking_++;
  Asking& asking = askings_.try_emplace(id, io_, std::move(gathered)).first->second;
  asking.answers[node_] = respond_(question);
  const bool alone = uplink_ == nullptr || nodes_ < 2 || askings_.size() > askings_max;
  asking.timer.expires_after(alone ? Clock::duration::zero() : patience);
  asking.timer.async_wait([this, id](auto error) {
    if (!error) conclude(id);
  });
  if (alone) return;
  request(wire::Add{counter, 1}, [this, id, question](const auto&, BytesView payload) {
    const auto number = wire::decode<wire::Number>(payload);
    const auto asked = askings_.find(id);
    if (!number || asked == askings_.end()) return;
    asked->second.question = static_cast<std::uint64_t>(number->value);
    const std::string text = std::to_string(node_) + " " + question;
    request(wire::Set{question_key(asked->second.question), as_bytes(text)}, {});
    if (number->value > kept_questions) {
      const auto old = static_cast<std::uint64_t>(number->value - kept_questions);
      request(wire::Erase{question_key(old)}, {});
    }
    if (!std::exchange(collecting_, true)) collect();
  });
}

/// One after the other, as long as somebody waits for one.
void Inquiries::collect() {
  request(wire::Pop{after(usual_patience), answers_queue(node_)},
          [this](const auto& header, BytesView payload) {
            if (header.type == wire::Type::popped) {
              const auto popped = wire::decode<wire::Popped>(payload);
              if (popped && popped->value) take(as_text(*popped->value));
            }
            collecting_ = !is_end_of_epoch(header, payload) && !askings_.empty();
            if (collecting_) collect();
          });
}

void Inquiries::take(std::string_view answer) {
  const auto number = take_number(answer);
  const auto node = take_number(answer);
  if (!number || !node || *node >= static_cast<std::uint64_t>(nodes_)) return;
  for (auto& [id, asking] : askings_) {
    if (asking.question != *number) continue;
    asking.answers.insert_or_assign(static_cast<int>(*node), std::string(answer));
    if (asking.answers.size() == static_cast<std::size_t>(nodes_)) conclude(id);
    return;
  }
}

void Inquiries::conclude(std::uint64_t asking) {
  auto ended = askings_.extract(asking);
  if (ended.empty()) return;
  boost::asio::post(io_, [gathered = std::move(ended.mapped().gathered),
                          answers = std::move(ended.mapped().answers)]() mutable {
    gathered(std::move(answers));
  });
}

// ---- Rings ----

void Inquiries::ring() {
  if (uplink_ == nullptr) return;
  if (node_ == 0) return rung_();
  request(wire::Push{rings, as_bytes(std::to_string(node_))}, {});
}

void Inquiries::await_rings() {
  request(wire::Pop{{}, rings}, [this](const auto& header, BytesView) {
    if (header.type != wire::Type::popped) return;  // The end of the epoch.
    await_rings();
    rung_();
  });
}

}  // namespace dlaunch::launcher
