#include "launcher/job/core/seat_core.hpp"

#include "tests/support/transcript.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>

#include <doctest/doctest.h>

namespace dlaunch::launcher::seat {
namespace {

using transcript::at_ms;
using transcript::ms_of;
using transcript::Words;

using Cause = rendezvous::Stop::Cause;
const std::map<std::string, Cause> causes = {
    {"failure", Cause::failure}, {"membership", Cause::membership}, {"evicted", Cause::evicted}};
const std::map<std::string, StopOrder::Manner> manners = {
    {"report_first", StopOrder::Manner::report_first},
    {"at_once", StopOrder::Manner::at_once},
    {"kill", StopOrder::Manner::kill}};

Rules rules_of(bool hosts, int join_s) {
  Rules rules;
  rules.job.join_timeout = std::chrono::seconds(join_s);
  rules.heartbeat = std::chrono::seconds(1);
  rules.hosts = hosts;
  rules.peer = "the daemon";
  return rules;
}

/// "config hosts", "config elastic".
Rules rules_of(const Words& words) {
  const auto has = [&](const char* word) { return std::ranges::count(words, word) > 0; };
  Rules rules = rules_of(has("hosts"), 3);
  if (has("elastic")) rules.job.nodes_max = 4;
  return rules;
}

/// "2:7": epoch 7 of incarnation 2, in which this node has the ranks 2 and 3; it is the second of
/// so many nodes.
rendezvous::Admitted admission(const std::string& epoch, bool hosted, int nodes = 1) {
  rendezvous::Admitted admitted;
  admitted.admission.node_count = nodes;
  admitted.admission.node_rank = nodes > 1 ? 1 : 0;
  admitted.admission.incarnation = std::stoull(epoch);
  admitted.admission.epoch = std::stoull(epoch.substr(epoch.find(':') + 1));
  admitted.admission.first_rank = 2;
  admitted.admission.local_size = 2;
  admitted.hosted = hosted;
  if (hosted) admitted.host = rendezvous::HostPlace{"b", "host-b", 0, 2};
  return admitted;
}

Said failure(int rank) {
  Fact fact;
  fact.rank = rank;
  return {rendezvous::WorkerFailed{0, 1, fact}};
}

Said end_of(std::uint64_t epoch) {
  rendezvous::WorkersEnded ended;
  ended.epoch = epoch;
  return {ended};
}

/// "ended 5": rank 2 has exited with it.
Said failed_end(int exit_code) {
  rendezvous::WorkersEnded ended;
  ended.epoch = 1;
  ended.outcome = rendezvous::WorkersEnded::Outcome::failed;
  ended.exit_code = exit_code;
  ended.facts.ranks[2] = {.rank = 2, .end = Fact::End::failed, .exit_code = exit_code};
  return {ended};
}

Event parse_event(const Words& words) {
  const std::string& name = words.at(0);
  const auto number = [&](std::size_t i) { return std::stoi(words.at(i)); };
  if (name == "welcomed") {
    Welcomed welcomed;
    welcomed.offer.host = "h";
    return welcomed;
  }
  if (name == "trouble") {
    return Trouble{words.at(2), at_ms(number(1)), words.size() > 3 ? words[3] : ""};
  }
  if (name == "due") {
    if (words.size() == 1) return Due{};
    return Due{Trouble{words.at(2), at_ms(number(1))}};
  }
  if (name == "admitted") {
    return admission(words.at(1), words.size() > 2, words.size() > 3 ? number(3) : 1);
  }
  // "succession 7 1 b:1 2 c:1": node ranks, and where they would host.
  if (name == "succession") {
    rendezvous::Succession succession{std::stoull(words.at(1)), {}};
    for (std::size_t i = 2; i + 1 < words.size(); i += 2) {
      succession.order.push_back({number(i), words[i + 1]});
    }
    return succession;
  }
  if (name == "stop")
    return rendezvous::Stop{0, std::stoull(words.at(1)), causes.at(words[2]), "w"};
  if (name == "ranks_lost") {
    return rendezvous::RanksLost{std::stoull(words.at(1)), number(2), 1, "h", Departure{}};
  }
  if (name == "refused") return rendezvous::Refuse{0, Errc::refused, number(1), "no"};
  if (name == "finish") return rendezvous::Finish{number(1), std::nullopt, "over"};
  if (name == "failed") return failure(number(1));
  if (name == "left") return Said{rendezvous::WorkerLeft{0, 1, number(1)}};
  if (name == "calls") return Said{rendezvous::CallsMade{0, 1, {}}};
  if (name == "ended") return words.size() > 1 ? failed_end(number(1)) : end_of(1);
  if (name == "leave") return Said{rendezvous::Leave{0, number(1), "stopped"}};
  if (name == "withdrawn") return Withdrawn{};
  throw std::invalid_argument("no event " + name);
}

struct PrintSaid {
  std::string operator()(const rendezvous::Join& e) {
    return "join" + (e.holding ? " " + std::to_string(e.holding->epoch) : "");
  }
  std::string operator()(const rendezvous::Heartbeat&) { return "heartbeat"; }
  std::string operator()(const rendezvous::WorkerFailed& e) {
    return "failed " + std::to_string(e.fact.rank);
  }
  std::string operator()(const rendezvous::WorkerLeft& e) {
    return "left " + std::to_string(e.rank);
  }
  std::string operator()(const rendezvous::CallsMade&) { return "calls"; }
  std::string operator()(const rendezvous::WorkersEnded&) { return "ended"; }
  std::string operator()(const rendezvous::TookPlace& e) {
    return "place " + std::to_string(e.epoch);
  }
  std::string operator()(const rendezvous::Leave& e) {
    return "leave " + std::to_string(e.exit_code) + (e.closes ? " closes" : "");
  }
  std::string operator()(const auto&) { return "?"; }
};

struct Print {
  std::string operator()(const rendezvous::Event& e) {
    return "tell " + std::visit(PrintSaid{}, e);
  }
  std::string operator()(const Order& e) {
    for (const auto& [name, manner] : manners) {
      if (manner == e.manner) return "order " + std::to_string(e.epoch) + " " + name;
    }
    return "?";
  }
  std::string operator()(const Reconnected&) { return "reconnected"; }
  std::string operator()(const Wake& e) { return "wake " + std::to_string(ms_of(e.at)); }
  std::string operator()(const Finished& e) {
    return "finished " + std::to_string(e.end.exit_code) + (e.judged ? " judged '" : " '") +
           e.end.sentence + "'";
  }
  std::string operator()(const Close&) { return "close"; }
  std::string operator()(const LoseStore&) { return "lose_store"; }
  std::string operator()(const GoTo& e) { return "go_to " + e.address; }
  std::string operator()(const HostHere& e) {
    return "host_here " + std::to_string(e.takeover.place.epoch) + " '" + e.takeover.why + "'";
  }
  std::string operator()(const rendezvous::Admit& e) {
    return "admit " + std::to_string(e.admission.epoch);
  }
  std::string operator()(const rendezvous::RanksLost& e) {
    return "ranks_lost " + std::to_string(e.first_rank) +
           (e.how.words.empty() ? "" : " '" + e.how.words + "'");
  }
  std::string operator()(const rendezvous::Standing& e) { return "say '" + e.sentence + "'"; }
};

TEST_CASE("seat transcripts") {
  std::optional<SeatCore> core;
  transcript::replay(
      "seat", 4, [&](const Words& words) { core.emplace(rules_of(words)); },
      [&](const Words& words, Clock::time_point now) {
        return transcript::print<Print>(core.value().step(parse_event(words), now));
      });
}

TEST_CASE("of workers that leave the first sixteen are told of") {
  SeatCore core(rules_of(false, 3));
  core.step(Welcomed{}, at_ms(1));
  core.step(admission("1:7", false), at_ms(2));
  for (int rank = 0; rank < 16; ++rank) {
    CHECK(core.step(Said{rendezvous::WorkerLeft{0, 7, rank}}, at_ms(3)).size() == 1);
  }
  CHECK(core.step(Said{rendezvous::WorkerLeft{0, 7, 16}}, at_ms(3)).empty());
}

/// What an agent does with a seat, and what must hold whatever the connection and the rendezvous
/// do.
class Story {
 public:
  explicit Story(unsigned seed) : random_(seed), core_(rules_of(below(4) == 0, 60)) {}

  void run() {
    take(Due{});
    for (int i = 0; i < 120; ++i) {
      now_ += below(30) == 0 ? 20'000 : below(1500);
      take(next());
    }
    CHECK(ends_ <= 1);
  }

 private:
  int below(unsigned n) { return static_cast<int>(random_() % n); }

  Event next() {
    if (working_ && below(6) == 0) {
      working_ = false;
      ended_ = true;
      return end_of(epoch_);
    }
    if (working_ && below(6) == 0) {
      failed_ = true;
      return failure(below(4));
    }
    if (below(40) == 0) return Said{rendezvous::Leave{0, 143, "stopped"}};
    if (!connected_ || below(8) == 0) {
      if (connected_) good_ = now_;
      connected_ = false;
      if (below(3) > 0) return Trouble{"broken", at_ms(good_)};
      connected_ = true;
      return Welcomed{};
    }
    if (core_.is_coming()) return Welcomed{};
    const std::vector<Event> pushed = {
        admission("1:" + std::to_string(1 + below(9)), below(2) == 0),
        rendezvous::Stop{0, epoch_, static_cast<Cause>(below(3)), "w"},
        rendezvous::RanksLost{epoch_, 0, 1, "h", Departure{}},
        Due{},
        Due{},
    };
    if (below(60) == 0) return rendezvous::Finish{below(3), std::nullopt, "over"};
    return pushed[static_cast<std::size_t>(below(5))];
  }

  void take(const Event& event) {
    const bool was_over = core_.is_over();
    bool repeated_failure = false, repeated_end = false;
    for (const auto& effect : core_.step(event, at_ms(now_))) {
      CHECK_FALSE(was_over);
      if (const auto* told = std::get_if<rendezvous::Event>(&effect)) {
        if (const auto* join = std::get_if<rendezvous::Join>(told)) {
          // Without a holding it holds nothing: no worker is left.
          CHECK((join->holding || !working_));
          if (!join->holding) failed_ = ended_ = false;
        }
        repeated_failure |= std::holds_alternative<rendezvous::WorkerFailed>(*told);
        repeated_end |= std::holds_alternative<rendezvous::WorkersEnded>(*told);
      }
      if (const auto* admit = std::get_if<rendezvous::Admit>(&effect)) {
        CHECK_FALSE(working_);
        working_ = true;
        failed_ = ended_ = false;
        epoch_ = admit->admission.epoch;
      }
      if (std::holds_alternative<Order>(effect)) CHECK((working_ || ended_));
      if (std::holds_alternative<Finished>(effect) || std::holds_alternative<Close>(effect))
        ++ends_;
    }
    // What was said of an epoch that is held is never lost with a connection.
    if (std::holds_alternative<Welcomed>(event) && !was_over) {
      CHECK(repeated_failure == failed_);
      CHECK(repeated_end == ended_);
    }
  }

  std::mt19937 random_;
  SeatCore core_;
  long now_ = 0, good_ = 0;
  bool connected_ = false, working_ = false;
  bool failed_ = false, ended_ = false;  ///< Told of the epoch that is held.
  std::uint64_t epoch_ = 0;
  int ends_ = 0;
};

TEST_CASE("whatever breaks, nothing said is lost, no epoch begins beside workers, it ends once") {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    Story(seed).run();
  }
}

}  // namespace
}  // namespace dlaunch::launcher::seat
