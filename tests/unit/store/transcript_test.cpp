// The key-value core by transcript: tests/scenario/store/*.txt. A line is a caller (client and
// request), a command and its words; behind it stand, indented, the effects it must have, all of
// them and in this order. "_" is the empty value. Deadlines and "at" are milliseconds.
#include "runtime/store/core/key_values.hpp"
#include "tests/support/store_effects.hpp"

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::store;
using test::shown;

namespace {

using Words = std::vector<std::string>;

/// Carries out one command after another on one namespace.
class Runner {
 public:
  std::vector<std::string> run(const std::string& line) {
    std::istringstream in(line);
    std::string who, command;
    in >> who >> command;
    const auto dot = who.find('.');
    const Caller by{std::stoull(who),
                    dot == std::string::npos ? 0 : std::stoull(who.substr(dot + 1))};
    Words words;
    deadline_ = Clock::time_point::max();
    for (std::string word; in >> word;) {
      if (word.starts_with("until=")) {
        deadline_ = at(word.substr(6));
      } else {
        words.push_back(word);
      }
    }
    Effects effects;
    do_one(by, command, words, effects);
    std::vector<std::string> result;
    for (const Effect& effect : effects) result.push_back(shown(effect));
    return result;
  }

 private:
  static Clock::time_point at(const std::string& ms) {
    return Clock::time_point{} + std::chrono::milliseconds(std::stoll(ms));
  }
  static BytesView bytes(const std::string& word) {
    return as_bytes(word == "_" ? std::string_view() : std::string_view(word));
  }

  void do_one(Caller by, const std::string& command, const Words& words, Effects& out) {
    using Command = std::function<void(Caller, const Words&, Effects&)>;
    const std::map<std::string, Command> commands = {
        {"set",
         [&](Caller c, const Words& w, Effects& o) { kv_.set(c, w.at(0), bytes(w.at(1)), o); }},
        {"lease",
         [&](Caller c, const Words& w, Effects& o) {
           kv_.set_leased(c, w.at(0), bytes(w.at(1)), c.client,
                          std::chrono::milliseconds(std::stoll(w.at(2))), now_, o);
         }},
        {"renew", [&](Caller c, const Words&, Effects&) { kv_.renew(c.client, now_); }},
        {"end-leases", [&](Caller c, const Words&, Effects& o) { kv_.end_leases(c.client, o); }},
        {"get", [&](Caller c, const Words& w, Effects& o) { kv_.get(c, w.at(0), o); }},
        {"multi-get", [&](Caller c, const Words& w, Effects& o) { kv_.multi_get(c, views(w), o); }},
        {"multi-set",
         [&](Caller c, const Words& w, Effects& o) {
           std::vector<std::string_view> keys;
           std::vector<BytesView> values;
           for (std::size_t i = 0; i + 1 < w.size(); i += 2) {
             keys.emplace_back(w[i]);
             values.push_back(bytes(w[i + 1]));
           }
           kv_.multi_set(c, keys, values, o);
         }},
        {"add", [&](Caller c, const Words& w,
                    Effects& o) { kv_.add(c, w.at(0), std::stoll(w.at(1)), o); }},
        {"compare-set",
         [&](Caller c, const Words& w, Effects& o) {
           const bool absent = w.at(1) == "-";
           kv_.compare_set(c, w.at(0), absent ? std::nullopt : std::optional(bytes(w.at(1))),
                           bytes(w.at(2)), o, w.size() > 3 && w[3] == "empty-is-absent");
         }},
        {"append",
         [&](Caller c, const Words& w, Effects& o) { kv_.append(c, w.at(0), bytes(w.at(1)), o); }},
        {"erase", [&](Caller c, const Words& w, Effects& o) { kv_.erase(c, w.at(0), o); }},
        {"list",
         [&](Caller c, const Words& w, Effects& o) { kv_.list(c, w.empty() ? "" : w[0], o); }},
        {"count", [&](Caller c, const Words&, Effects& o) { kv_.count(c, o); }},
        {"wait",
         [&](Caller c, const Words& w, Effects& o) { kv_.wait(c, views(w), deadline_, o); }},
        {"wait-get",
         [&](Caller c, const Words& w, Effects& o) { kv_.wait_get(c, w.at(0), deadline_, o); }},
        {"check", [&](Caller c, const Words& w, Effects& o) { kv_.check(c, views(w), o); }},
        {"push",
         [&](Caller c, const Words& w, Effects& o) { kv_.push(c, w.at(0), bytes(w.at(1)), o); }},
        {"try-pop", [&](Caller c, const Words& w, Effects& o) { kv_.try_pop(c, w.at(0), o); }},
        {"pop", [&](Caller c, const Words& w, Effects& o) { kv_.pop(c, w.at(0), deadline_, o); }},
        {"queue-size",
         [&](Caller c, const Words& w, Effects& o) { kv_.queue_size(c, w.at(0), o); }},
        {"watch", [&](Caller c, const Words& w, Effects& o) { kv_.watch(c, w.at(0), o); }},
        {"barrier",  // name round count contributors...
         [&](Caller c, const Words& w, Effects& o) {
           std::vector<int> who;
           for (std::size_t i = 3; i < w.size(); ++i) who.push_back(std::stoi(w[i]));
           kv_.barrier(c, w.at(0), std::stoull(w.at(1)), std::stoi(w.at(2)), who, deadline_, o);
         }},
        {"lose",  // contributor count how-many
         [&](Caller, const Words& w, Effects& o) {
           const int many = w.size() > 2 ? std::stoi(w[2]) : 1;
           kv_.lose({std::stoi(w.at(0)), many}, std::stoi(w.at(1)), "is gone", o);
         }},
        {"all-gather",  // name round count, then contributor=blob...
         [&](Caller c, const Words& w, Effects& o) {
           std::vector<int> who;
           std::vector<std::string> blobs;
           for (std::size_t i = 3; i < w.size(); ++i) {
             const auto equals = w[i].find('=');
             who.push_back(std::stoi(w[i].substr(0, equals)));
             blobs.push_back(w[i].substr(equals + 1));
           }
           std::vector<BytesView> contents;
           for (const auto& blob : blobs) contents.push_back(bytes(blob));
           kv_.all_gather(c, w.at(0), std::stoull(w.at(1)), std::stoi(w.at(2)), who, contents,
                          deadline_, o);
         }},
        {"cancel", [&](Caller c, const Words&, Effects&) { kv_.cancel(c); }},
        {"disconnect", [&](Caller c, const Words&, Effects&) { kv_.disconnect(c.client); }},
        {"at",
         [&](Caller, const Words& w, Effects& o) {
           now_ = at(w.at(0));
           kv_.tick(now_, o);
         }},
    };
    const auto found = commands.find(command);
    REQUIRE_MESSAGE(found != commands.end(), "no such command: " << command);
    found->second(by, words, out);
  }
  static std::vector<std::string_view> views(const Words& words) {
    return {words.begin(), words.end()};
  }

  KeyValues kv_;
  Clock::time_point now_{};
  Clock::time_point deadline_{};
};

}  // namespace

TEST_CASE("the store's transcripts") {
  namespace fs = std::filesystem;
  int files = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path(DLAUNCH_SOURCE_DIR) / "tests/scenario/store")) {
    ++files;
    Runner runner;
    std::ifstream in(entry.path());
    std::vector<std::string> due;  // Effects of the last command that were not yet read.
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      INFO(entry.path().filename().string(), ":", number, ": ", line);
      if (line.empty() || line[0] == '#') continue;
      if (line[0] == ' ') {
        const std::string expected = line.substr(line.find_first_not_of(' '));
        REQUIRE(!due.empty());
        CHECK(due.front() == expected);
        due.erase(due.begin());
        continue;
      }
      CHECK_MESSAGE(due.empty(),
                    "an effect more than expected: " << (due.empty() ? "" : due.front()));
      due = runner.run(line);
    }
    CHECK(due.empty());
  }
  CHECK(files >= 5);
}
