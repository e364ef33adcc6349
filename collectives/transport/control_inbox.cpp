#include "collectives/transport/control_inbox.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dlaunch::transport {
namespace {

/// The most notices of either kind, including those for communicators that this rank never makes;
/// the oldest make room.
constexpr std::size_t failures_max = 1024;
/// The most calls of one communicator; a device's queue holds about as many.
constexpr std::size_t calls_max = 2048;
constexpr std::size_t chains_max = 64;

}  // namespace

bool ControlInbox::take(int from, const Header& header, BytesView payload) {
  switch (header.kind) {
    case Kind::failure:
      if (auto notice = decode_failure(header, payload)) {
        notice->from = from;
        take_failure(std::move(*notice));
      }
      return false;
    case Kind::inquiry:
      return true;
    case Kind::status:
      if (const auto answer = decode_answer(payload)) take_answer(from, header, *answer);
      return false;
    case Kind::call:
      take_call(header.communicator, {from, fingerprint_of(header)});
      for (; payload.size() >= sizeof(Header); payload = payload.subspan(sizeof(Header))) {
        Header more;
        std::memcpy(&more, payload.data(), sizeof more);
        if (!is_plausible(more) || more.kind != Kind::call) return false;
        take_call(header.communicator, {from, fingerprint_of(more)});
      }
      return false;
    case Kind::chain:
      if (auto chain = decode_chain(payload)) take_chain(std::move(*chain));
      return false;
    case Kind::collective:
    case Kind::message:
    case Kind::taken:
      return false;  // Data goes to the inbox, and confirmations go through the links.
  }
  return false;
}

void ControlInbox::take_failure(FailureNotice notice) {
  if (notice.scope == Scope::this_call) {
    const std::pair call(notice.communicator, notice.sequence);
    if (wrong_arguments_.try_emplace(call, std::move(notice)).second) {
      wrong_in_order_.push_back(call);
    }
    if (wrong_in_order_.size() > failures_max) {
      wrong_arguments_.erase(wrong_in_order_.front());
      wrong_in_order_.pop_front();
    }
  } else {
    const std::uint64_t communicator = notice.communicator;
    const auto [known, is_first] = failures_.try_emplace(communicator, notice);
    if (is_first) failed_in_order_.push_back(communicator);
    if (!is_first && notice.sequence < known->second.sequence) known->second = std::move(notice);
    if (failed_in_order_.size() > failures_max) {
      failures_.erase(failed_in_order_.front());
      failed_in_order_.pop_front();
    }
  }
  has_failures_ = true;
}

void ControlInbox::forget(std::uint64_t communicator) {
  failures_.erase(communicator);
  std::erase(failed_in_order_, communicator);
  const auto is_of_it = [&](const auto& call) { return call.first == communicator; };
  std::erase_if(wrong_arguments_, [&](const auto& entry) { return is_of_it(entry.first); });
  std::erase_if(wrong_in_order_, is_of_it);
  calls_.erase(communicator);
  messages_.erase(communicator);
  has_failures_ = !failures_.empty() || !wrong_arguments_.empty();
  has_calls_ = !calls_.empty() || !messages_.empty();
}

const FailureNotice* ControlInbox::failure_of(std::uint64_t communicator) const {
  const auto found = failures_.find(communicator);
  return found == failures_.end() ? nullptr : &found->second;
}

const FailureNotice* ControlInbox::failure_of(std::uint64_t communicator,
                                              std::uint64_t sequence) const {
  const auto found = wrong_arguments_.find({communicator, sequence});
  return found == wrong_arguments_.end() ? nullptr : &found->second;
}

const FailureNotice* ControlInbox::wrong_arguments(std::uint64_t communicator) const {
  auto after = wrong_arguments_.upper_bound({communicator, ~std::uint64_t{0}});
  if (after == wrong_arguments_.begin()) return nullptr;
  --after;
  return after->first.first == communicator ? &after->second : nullptr;
}

void ControlInbox::take_call(std::uint64_t communicator, const ToldCall& call) {
  auto& kept = is_message(call.call.op) ? messages_ : calls_;
  if (kept.size() >= failures_max && !kept.contains(communicator)) return;
  auto& calls = kept[communicator];
  if (calls.size() >= calls_max) return;
  calls.push_back(call);
  has_calls_ = true;
}

std::optional<ToldCall> ControlInbox::next_call(std::uint64_t communicator,
                                                std::uint64_t sequence) {
  const auto calls = calls_.find(communicator);
  if (calls == calls_.end()) return std::nullopt;
  // Some ranks may be ahead of others.
  const auto due =
      std::find_if(calls->second.begin(), calls->second.end(),
                   [&](const ToldCall& told) { return told.call.sequence <= sequence; });
  if (due == calls->second.end()) return std::nullopt;
  return take(calls_, calls, due);
}

std::optional<ToldCall> ControlInbox::next_message(std::uint64_t communicator) {
  const auto messages = messages_.find(communicator);
  if (messages == messages_.end()) return std::nullopt;
  return take(messages_, messages, messages->second.begin());
}

ToldCall ControlInbox::take(ToldCalls& calls, ToldCalls::iterator of,
                            std::deque<ToldCall>::iterator told) {
  const ToldCall taken = *told;
  of->second.erase(told);
  if (of->second.empty()) calls.erase(of);
  has_calls_ = !calls_.empty() || !messages_.empty();
  return taken;
}

std::optional<UnderWay> ControlInbox::activity(std::uint64_t communicator) const {
  std::optional<UnderWay> best;
  const auto fits = [&](const UnderWay& call) {
    return std::pair(call.doing.communicator == communicator, call.doing.call.sequence);
  };
  for (const Activity* activity : activities_) {
    UnderWay call = (*activity)();
    if (!best || fits(*best) < fits(call)) best = std::move(call);
  }
  return best;
}

void ControlInbox::take_chain(WaitChain chain) {
  if (chains_.size() < chains_max) chains_.push_back(std::move(chain));
}

std::optional<WaitChain> ControlInbox::next_chain() {
  if (chains_.empty()) return std::nullopt;
  WaitChain chain = std::move(chains_.front());
  chains_.pop_front();
  return chain;
}

void ControlInbox::take_answer(int from, const Header& header, const Answer& answer) {
  for (Inquiry* inquiry : inquiries_) {
    if (inquiry->communicator == header.communicator && inquiry->sequence == header.sequence &&
        static_cast<std::uint64_t>(inquiry->question) == header.argument) {
      inquiry->answers.insert_or_assign(from, answer);
    }
  }
}

}  // namespace dlaunch::transport
