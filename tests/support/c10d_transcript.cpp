#include "tests/support/c10d_transcript.hpp"

#include "tests/support/c10d_peer.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>

namespace dlaunch::c10d_test {

namespace {

using c10d::Dialect;

/// Indexed by the operation's code.
constexpr std::array names_a{"set",  "compare_set", "get",   "add",  "check",
                             "wait", "count",       "watch", "erase"};
constexpr std::array names_c{"validate",  "set",        "compare_set", "get",    "add",
                             "check",     "wait",       "count",       "erase",  "append",
                             "multi_get", "multi_set",  "cancel_wait", "ping",   "push",
                             "pop",       "queue_size", "list",        "barrier"};

template <class Names>
unsigned code_in(const Names& names, const std::string& name) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) throw std::invalid_argument("no operation " + name);
  return static_cast<unsigned>(at - names.begin());
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  for (auto& word : words) {
    if (word == "''") word.clear();
  }
  return words;
}

std::string hex(const std::string& bytes) {
  static constexpr auto digits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += digits[byte >> 4];
    text += digits[byte & 15];
    text += ' ';
  }
  return text.empty() ? "nothing" : text;
}

/// The bytes that a client has heard, as a line says.
struct Expectation {
  std::string bytes;
  bool closed = false;
};

Expectation expectation_of(const std::vector<std::string>& words, std::size_t begin) {
  Wire wire;
  Expectation expected;
  for (auto i = begin; i < words.size(); ++i) {
    const auto& word = words[i];
    if (word == "nothing") continue;
    if (word == "closed") {
      expected.closed = true;
    } else if (word == "ready") {
      wire.byte(0);
    } else if (word == "u8") {
      wire.byte(static_cast<unsigned char>(std::stoi(words.at(++i))));
    } else if (word == "u32") {
      wire.u32(static_cast<std::uint32_t>(std::stoul(words.at(++i))));
    } else if (word == "i64") {
      wire.i64(std::stoll(words.at(++i)));
    } else if (word == "text") {
      wire.text(words.at(++i));
    } else {
      throw std::invalid_argument("nobody can hear " + word);
    }
  }
  expected.bytes = wire.str();
  return expected;
}

class Stage {
 public:
  explicit Stage(bool slowly) : slowly_(slowly) {}

  /// Plays a line; what differs, or nothing.
  std::string play(const std::string& line) {
    const auto words = words_of(line);
    if (words.empty() || words[0].starts_with('#')) return {};
    if (words[0] == "open") {
      open(words.at(1), words.at(2) == "a" ? Dialect::a : Dialect::c);
      return {};
    }
    if (words[0] == "hang-up") {
      actors_.at(words.at(1)).peer->hang_up();
      return {};
    }
    auto& actor = actors_.at(words[0]);
    if (words.at(1) == ">") {
      say(*actor.peer, request_bytes(actor.dialect, line.substr(line.find('>') + 1)));
      return {};
    }
    if (words[1] != "<") throw std::invalid_argument("neither > nor <");
    const auto expected = expectation_of(words, 2);
    const auto heard = actor.peer->heard();
    if (heard != expected.bytes) return "heard " + hex(heard) + "not " + hex(expected.bytes);
    if (actor.peer->closed() != expected.closed) return expected.closed ? "not closed" : "closed";
    return {};
  }

 private:
  struct Actor {
    Dialect dialect{};
    std::unique_ptr<Peer> peer;
  };

  void open(const std::string& name, Dialect dialect) {
    auto peer = std::make_unique<Peer>(std::stoull(name), shared_);
    if (dialect == Dialect::c) say(*peer, std::string(as_text(c10d::hello)));
    actors_[name] = {dialect, std::move(peer)};
  }

  void say(Peer& peer, const std::string& bytes) const {
    if (slowly_) {
      peer.say_slowly(bytes);
    } else {
      peer.say(bytes);
    }
  }

  bool slowly_;
  c10d::Namespace shared_;
  std::map<std::string, Actor> actors_;
};

}  // namespace

std::string request_bytes(Dialect dialect, const std::string& request) {
  const auto words = words_of(request);
  const auto& name = words.at(0);
  Wire wire;
  wire.code(dialect == Dialect::a ? code_in(names_a, name) : code_in(names_c, name));
  if (name == "add" || name == "barrier") {
    wire.text(words.at(1)).i64(std::stoll(words.at(2)));
  } else if (name == "ping" || name == "validate") {
    wire.u32(static_cast<std::uint32_t>(std::stoul(words.at(1))));
  } else if (name == "check" || name == "wait" || name == "multi_get") {
    wire.u64(words.size() - 1);
    for (std::size_t i = 1; i < words.size(); ++i) wire.text(words[i]);
  } else if (name == "multi_set") {
    wire.u64((words.size() - 1) / 2);
    for (std::size_t i = 1; i < words.size(); ++i) wire.text(words[i]);
  } else {
    for (std::size_t i = 1; i < words.size(); ++i) wire.text(words[i]);
  }
  return wire.str();
}

std::vector<std::string> play(const std::string& transcript, bool slowly) {
  Stage stage(slowly);
  std::istringstream in(transcript);
  std::vector<std::string> differences;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const auto difference = stage.play(line);
    if (!difference.empty()) {
      differences.push_back("line " + std::to_string(number) + ": " + line + ": " + difference);
    }
  }
  return differences;
}

}  // namespace dlaunch::c10d_test
