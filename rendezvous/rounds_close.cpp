#include "rendezvous/rounds_state.hpp"
#include "runtime/base/deadline.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

using namespace std::chrono_literals;

/// When the rest of a last call is told.
constexpr std::array countdown{30s, 20s, 10s, 5s};
constexpr std::size_t missing_shown_max = 8;
/// Up to so many nodes hear at once of each that comes.
constexpr std::size_t nodes_told_at_once = 16;
constexpr auto standing_interval = 1s;

/// node2 before node10.
bool natural_less(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  while (!a.empty() && !b.empty()) {
    if (digit(a.front()) && digit(b.front())) {
      const auto number = [&](std::string_view& text) {
        while (text.size() > 1 && text.front() == '0' && digit(text[1])) text.remove_prefix(1);
        std::size_t length = 0;
        while (length < text.size() && digit(text[length])) ++length;
        const auto digits = text.substr(0, length);
        text.remove_prefix(length);
        return digits;
      };
      const auto x = number(a);
      const auto y = number(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a.front() != b.front()) return a.front() < b.front();
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.size() < b.size();
}

/// The order in which nodes without a claim are placed.
bool before(const Node* a, const Node* b) {
  const auto& x = a->offer;
  const auto& y = b->offer;
  if (x.scheduler_order != y.scheduler_order) {
    if (!x.scheduler_order || !y.scheduler_order) return x.scheduler_order.has_value();
    return *x.scheduler_order < *y.scheduler_order;
  }
  if (x.id != y.id) return natural_less(x.id, y.id);
  return a->session < b->session;
}

std::string seconds_text(Clock::duration left) {
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(left).count()) + " s";
}

}  // namespace

void Rounds::State::begin_gathering() {
  phase = Phase::gathering;
  world_size = 0;
  members = 0;
  running = 0;
  cause = EndCause::none;
  cause_reason.clear();
  ends.clear();
  join_deadline.reset();
  last_call.reset();
  for (auto& [session, node] : nodes) {
    node.admission.reset();
    node.order.reset();
    node.end.reset();
  }
  re_forming = true;
}

void Rounds::State::consider_gathering(Session newcomer) {
  if (standing_due && *standing_due <= now) standing_due.reset();
  if (nodes.empty()) {
    join_deadline.reset();
    last_call.reset();
    return;
  }
  if (!join_deadline) join_deadline = deadline_after(rules.join_timeout, now);
  const auto count = static_cast<int>(nodes.size());
  if (count >= rules.nodes_max) return close();
  if (count < rules.nodes_min) {
    last_call.reset();
    if (*join_deadline <= now) {
      constexpr int ranks_missing = 76;
      constexpr int node_lost = 79;
      return finish(after_loss ? node_lost : ranks_missing, {},
                    "not all nodes came within " + duration_text(rules.join_timeout) + ": " +
                        std::to_string(count) + " of " + std::to_string(rules.nodes_min) +
                        " nodes" + missing());
    }
    return stand_gathering(newcomer);
  }
  if (re_forming) return close();
  if (!last_call) {
    last_call = deadline_after(rules.last_call, now);
    calls_said = 0;
  }
  if (*last_call <= now) return close();
  stand_gathering(newcomer);
}

/// "; missing node ranks 1 and 3", where every node has said which it is.
std::string Rounds::State::missing() const {
  std::set<int> here;
  for (const auto& [session, node] : nodes) {
    if (!node.offer.rank_hint) return "";
    here.insert(*node.offer.rank_hint);
  }
  std::vector<int> absent;
  for (int rank = 0; rank < rules.nodes_min && absent.size() <= missing_shown_max; ++rank) {
    if (!here.contains(rank)) absent.push_back(rank);
  }
  if (absent.empty()) return "";
  std::string text = absent.size() == 1 ? "; missing node rank " : "; missing node ranks ";
  for (std::size_t i = 0; i < std::min(absent.size(), missing_shown_max); ++i) {
    if (i > 0) text += i + 1 == absent.size() ? " and " : ", ";
    text += std::to_string(absent[i]);
  }
  if (absent.size() > missing_shown_max) text += " and more";
  return text;
}

void Rounds::State::stand_gathering(Session newcomer) {
  const std::string came = std::to_string(nodes.size()) + " of ";
  const bool many = nodes.size() > nodes_told_at_once;
  const bool due = !told || *told + standing_interval <= now;
  if (many && !due) {
    standing_due = *told + standing_interval;
    if (newcomer != 0) effects.push_back(Standing{newcomer, came + "the nodes are here"});
    return;
  }
  if (!last_call) {
    return stand(came + std::to_string(rules.nodes_min) + " nodes" + missing() +
                 "; waiting for up to " + duration_text(rules.join_timeout));
  }
  const auto left = *last_call - now;
  // The clock runs in a sentence of its own, told a few times only.
  std::size_t calls = calls_said;
  while (calls < countdown.size() && left <= countdown[calls]) ++calls;
  const std::string sentence = came + std::to_string(rules.nodes_min) + " to " +
                               std::to_string(rules.nodes_max) + " nodes; last call in ";
  if (calls < countdown.size()) {
    standing_due = *last_call - countdown[calls];
  } else {
    standing_due.reset();
  }
  if (calls == calls_said && standing.starts_with(sentence)) return;
  calls_said = calls;
  stand(sentence + seconds_text(left));
}

void Rounds::State::stand(std::string sentence) {
  if (standing == sentence) return;
  standing = std::move(sentence);
  told = now;
  effects.push_back(Standing{0, standing});
}

/// Of more than there is room for, those of the last epoch come first.
std::vector<Node*> Rounds::State::choose() {
  std::vector<Node*> chosen;
  for (auto& [session, node] : nodes) chosen.push_back(&node);
  std::sort(chosen.begin(), chosen.end(), [this](const Node* a, const Node* b) {
    const bool x = rank_of.contains(a->offer.id);
    const bool y = rank_of.contains(b->offer.id);
    if (x != y) return x;
    return x ? rank_of.at(a->offer.id) < rank_of.at(b->offer.id) : before(a, b);
  });
  if (chosen.size() > static_cast<std::size_t>(rules.nodes_max)) {
    chosen.resize(static_cast<std::size_t>(rules.nodes_max));
  }
  return chosen;
}

/// By claim: the hint, then the rank it had; the others fill the gaps in their order.
void Rounds::State::give_ranks(std::vector<Node*>& chosen) {
  std::vector<Node*> placed(chosen.size(), nullptr);
  std::vector<Node*> rest;
  const auto claim = [&](Node* node, std::optional<int> rank) {
    if (!rank || *rank >= static_cast<int>(placed.size())) return false;
    Node*& place = placed[static_cast<std::size_t>(*rank)];
    if (place) return false;
    place = node;
    return true;
  };
  std::vector<Node*> unhinted;
  for (Node* node : chosen) {
    if (!claim(node, node->offer.rank_hint)) unhinted.push_back(node);
  }
  for (Node* node : unhinted) {
    const auto had = rank_of.find(node->offer.id);
    const bool kept = !node->offer.rank_hint && had != rank_of.end() && claim(node, had->second);
    if (!kept) rest.push_back(node);
  }
  // `rest` is in the order of choose(): who had a rank keeps its place among those who had.
  auto next = rest.begin();
  for (Node*& place : placed) {
    if (!place) place = *next++;
  }
  chosen = std::move(placed);
}

void Rounds::State::close() {
  auto chosen = choose();
  give_ranks(chosen);
  ++epoch;
  phase = Phase::running;
  cause = EndCause::none;
  after_loss = false;
  join_deadline.reset();
  last_call.reset();
  standing_due.reset();
  members = running = chosen.size();
  rank_of.clear();
  world_size = 0;
  for (const Node* node : chosen) world_size += node->offer.workers;

  int first_rank = 0;
  std::vector<Admission::Entry> roster;
  roster.reserve(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    Node& node = *chosen[i];
    rank_of[node.offer.id] = static_cast<int>(i);
    Admission admission;
    admission.epoch = epoch;
    admission.attempt = attempt;
    admission.node_rank = static_cast<int>(i);
    admission.node_count = static_cast<int>(chosen.size());
    admission.first_rank = first_rank;
    admission.local_size = node.offer.workers;
    admission.world_size = world_size;
    admission.store_addresses = chosen.front()->offer.store_addresses;
    roster.push_back({node.offer.id, node.offer.host, first_rank, node.offer.workers,
                      node.offer.store_addresses});
    node.admission = std::move(admission);
    first_rank += node.offer.workers;
  }
  chosen.front()->admission->roster = std::move(roster);
  for (const Node* node : chosen) effects.push_back(Admit{node->session, *node->admission});
  const std::string many = chosen.size() == 1 ? " node, " : " nodes, ";
  std::string sentence = "epoch " + std::to_string(epoch) + ": " + std::to_string(chosen.size()) +
                         many + std::to_string(world_size) +
                         (world_size == 1 ? " worker" : " workers");
  const std::size_t waiting = nodes.size() - chosen.size();
  if (waiting > 0) sentence += "; " + std::to_string(waiting) + " waiting";
  stand(std::move(sentence));
}

}  // namespace dlaunch::rendezvous
