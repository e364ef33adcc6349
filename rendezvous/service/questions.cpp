#include "rendezvous/service/questions.hpp"

#include <algorithm>

namespace dlaunch::rendezvous {

Questions::Sends Questions::ask(Session asker, const message::Ask& ask, const Nodes& nodes,
                                Clock::time_point now) {
  if (const auto before = find(asker, ask.number); before != open_.end()) forget(before);
  Sends out;
  const auto own = std::ranges::count(open_, asker, [](const auto& o) { return o.second.asker; });
  if (open_.size() >= open_max || static_cast<std::size_t>(own) >= message::questions_max ||
      ask.question.size() > message::question_bytes_max) {
    out.push_back({asker, message::Answered{ask.number}});
    return out;
  }
  const auto number = next_++;
  Open& open = open_[number];
  open = {.asker = asker,
          .number = ask.number,
          .deadline = now + std::min(ask.patience, patience_max),
          .asked = {ask.epoch, number, ask.question}};
  for (const auto& [node, rank] : nodes) {
    if (node == asker || (ask.node != message::Ask::all_nodes && ask.node != rank)) continue;
    open.waiting.emplace(node, rank);
    out.push_back({node, open.asked});
  }
  settle(open_.find(number), out);
  return out;
}

Questions::Sends Questions::answer(Session from, message::Answer answer) {
  Sends out;
  const auto open = open_.find(answer.number);
  if (open == open_.end()) return out;
  const auto waiting = open->second.waiting.find(from);
  if (waiting == open->second.waiting.end()) return out;
  if (held_bytes_ + answer.answer.size() <= held_bytes_max) {
    held_bytes_ += answer.answer.size();
    open->second.held.push_back({open->second.number, waiting->second, std::move(answer.answer)});
  }
  open->second.waiting.erase(waiting);
  settle(open, out);
  return out;
}

Questions::Sends Questions::taken(Session asker, const message::AnswerTaken& taken) {
  Sends out;
  const auto open = find(asker, taken.number);
  if (open == open_.end() || open->second.unread.empty()) return out;
  open->second.unread_bytes -= open->second.unread.front();
  open->second.unread.pop_front();
  settle(open, out);
  return out;
}

Questions::Sends Questions::back(Session node) const {
  Sends out;
  for (const auto& [number, open] : open_) {
    if (open.waiting.contains(node)) out.push_back({node, open.asked});
  }
  return out;
}

Questions::Sends Questions::keep(const std::function<bool(Session)>& is_there) {
  Sends out;
  for (auto at = open_.begin(); at != open_.end();) {
    const auto open = at++;
    if (!is_there(open->second.asker)) {
      out.push_back({open->second.asker, message::Answered{open->second.number}});
      forget(open);
    } else if (std::erase_if(open->second.waiting,
                             [&](const auto& node) { return !is_there(node.first); }) > 0) {
      settle(open, out);
    }
  }
  return out;
}

Questions::Sends Questions::tick(Clock::time_point now) {
  Sends out;
  for (auto at = open_.begin(); at != open_.end();) {
    const auto open = at++;
    if (now < open->second.deadline) continue;
    out.push_back({open->second.asker, message::Answered{open->second.number}});
    forget(open);
  }
  return out;
}

std::optional<Clock::time_point> Questions::next_deadline() const {
  if (open_.empty()) return std::nullopt;
  return std::ranges::min_element(open_, {}, [](const auto& o) { return o.second.deadline; })
      ->second.deadline;
}

Questions::Place Questions::find(Session asker, std::uint64_t number) {
  return std::ranges::find_if(open_, [&](const auto& open) {
    return open.second.asker == asker && open.second.number == number;
  });
}

void Questions::forget(Place open) {
  for (const auto& answer : open->second.held) held_bytes_ -= answer.answer.size();
  open_.erase(open);
}

/// Sends the answers that the asker has room for, and ends the question when no more can come.
void Questions::settle(Place place, Sends& out) {
  Open& open = place->second;
  while (!open.held.empty()) {
    const std::size_t size = open.held.front().answer.size();
    if (!open.unread.empty() && open.unread_bytes + size > unread_bytes_max) return;
    open.unread.push_back(size);
    open.unread_bytes += size;
    held_bytes_ -= size;
    out.push_back({open.asker, std::move(open.held.front())});
    open.held.pop_front();
  }
  if (!open.waiting.empty()) return;
  out.push_back({open.asker, message::Answered{open.number}});
  forget(place);
}

}  // namespace dlaunch::rendezvous
