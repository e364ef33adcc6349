// Runs the transcripts in tests/scenario/pmi, which real MPI libraries spoke under their own
// launchers, and what no such library says.
#include "launcher/pmi/core/node_ranks.hpp"
#include "launcher/pmi/core/program.hpp"
#include "tests/support/transcript.hpp"

#include <optional>
#include <random>
#include <stdexcept>

#include <doctest/doctest.h>

namespace dlaunch::launcher::pmi {
namespace {

using transcript::Words;

/// The words from one on, with their spaces; "\n" stands for a line's end.
std::string text_from(const Words& words, std::size_t first) {
  std::string text;
  for (std::size_t i = first; i < words.size(); ++i) text += (i > first ? " " : "") + words[i];
  for (auto at = text.find("\\n"); at != text.npos; at = text.find("\\n")) {
    text.replace(at, 2, "\n");
  }
  return text;
}

/// As a rank sends it: PMI-2's commands have semicolons, and their length before them.
std::string framed(std::string text) {
  if (text.find(';') == text.npos) return text + "\n";
  std::string length = std::to_string(text.size());
  return std::string(6 - length.size(), ' ') + length + text;
}

/// As a transcript shows what is sent: without the length, and without the line's end.
std::string shown(std::string bytes) {
  if (bytes.ends_with('\n')) bytes.pop_back();
  return bytes.starts_with(' ') ? bytes.substr(6) : bytes;
}

/// "a=b c=d".
std::map<std::string, std::string> pairs_of(const Words& words, std::size_t first) {
  std::map<std::string, std::string> pairs;
  for (std::size_t i = first; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    pairs.emplace(words[i].substr(0, equals), words[i].substr(equals + 1));
  }
  return pairs;
}

struct Print {
  std::string operator()(const Send& e) { return std::to_string(e.rank) + " " + shown(e.bytes); }
  std::string operator()(const Fence& e) {
    std::string text = "fence " + std::to_string(e.number);
    const auto pairs = unpacked(e.pairs);
    if (!pairs) return text + " garbage";
    for (const auto& [key, value] : *pairs) text.append(" " + key + "=" + value);
    return text;
  }
  std::string operator()(const Abort& e) {
    return "abort " + std::to_string(e.rank) + " " + std::to_string(e.exit_code);
  }
  std::string operator()(const Say& e) { return "say '" + e.sentence + "'"; }
  std::string operator()(const HangUp& e) { return "hang up " + std::to_string(e.rank); }
};

/// "config 0+2/4": this node has two of four ranks, from the first one on.
NodeRanks node_of(const std::string& place) {
  Setting setting{.job = "job"};
  setting.first_rank = std::stoi(place);
  setting.local_size = std::stoi(place.substr(place.find('+') + 1));
  setting.world_size = std::stoi(place.substr(place.find('/') + 1));
  setting.given.emplace("PMI_process_mapping", "(vector,(0,1,2))");
  return NodeRanks(setting);
}

}  // namespace

TEST_CASE("what MPI ranks ask is answered as their transcripts say") {
  std::optional<NodeRanks> ranks;
  const auto begin = [&](const Words& config) { ranks.emplace(node_of(config.at(1))); };
  const auto step = [&](const Words& words, Clock::time_point) {
    const std::string& what = words.at(0);
    if (what == "fenced") {
      // The first is this node's own.
      return transcript::print<Print>(
          ranks->fenced(std::stoull(words.at(1)), {packed(pairs_of(words, 2))}));
    }
    if (what == "failed") {
      return transcript::print<Print>(
          ranks->fence_failed(std::stoull(words.at(1)), text_from(words, 2)));
    }
    if (what == "ended") return transcript::print<Print>(ranks->ended(std::stoi(words.at(1))));
    return transcript::print<Print>(ranks->received(std::stoi(what), framed(text_from(words, 1))));
  };
  transcript::replay("pmi", 3, begin, step);
}

TEST_CASE("a command may come in pieces, and several at once") {
  NodeRanks ranks = node_of("0+1/1");
  const std::string said = "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_appnum\n";
  std::string answers;
  for (const char c : said) {
    for (const auto& effect : ranks.received(0, {&c, 1})) answers += std::get<Send>(effect).bytes;
  }
  std::string at_once;
  NodeRanks others = node_of("0+1/1");
  for (const auto& effect : others.received(0, said)) at_once += std::get<Send>(effect).bytes;
  CHECK(answers == at_once);
  CHECK(answers ==
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
        "cmd=appnum appnum=0\n");
}

TEST_CASE("whatever a rank sends, its node goes on") {
  std::mt19937 random(7);
  const std::vector<std::string> pieces = {"cmd=",
                                           "init ",
                                           "pmi_version=1 ",
                                           "pmi_version=2",
                                           "\n",
                                           "mcmd=spawn\n",
                                           "endcmd\n",
                                           "cmd=barrier_in\n",
                                           "cmd=finalize\n",
                                           "    12cmd=abort;x=",
                                           "   -12",
                                           ";;",
                                           "=",
                                           "kvs-fence;",
                                           "cmd=put key=a value=b\n",
                                           "cmd=get key=a\n",
                                           std::string("\0", 1),
                                           "999999",
                                           "thrid=3;"};
  for (int story = 0; story < 2000; ++story) {
    NodeRanks ranks = node_of("0+2/2");
    for (int step = 0; step < 30; ++step) {
      const int rank = static_cast<int>(random() % 2);
      Effects effects = ranks.received(rank, pieces[random() % pieces.size()]);
      for (const auto& effect : effects) {
        if (const auto* fence = std::get_if<Fence>(&effect)) {
          static_cast<void>(ranks.fenced(fence->number, {fence->pairs}));
        }
      }
    }
    ranks.ended(0);
    ranks.ended(1);
  }
}

TEST_CASE("a command without an end is cut off") {
  NodeRanks ranks = node_of("0+1/1");
  const Effects effects = ranks.received(0, std::string(command_bytes_max + 1, 'x'));
  CHECK(transcript::print<Print>(effects) ==
        "say 'rank 0 has sent a command of more than 131072 bytes where PMI was expected; its "
        "PMI_FD is closed'; hang up 0");
}

TEST_CASE("what another node sends is not believed before it is read") {
  CHECK(unpacked(packed({{"a", "b"}, {"c", ""}})) ==
        std::map<std::string, std::string>{{"a", "b"}, {"c", ""}});
  Bytes cut = packed({{"a", "bcd"}});
  cut.pop_back();
  CHECK_FALSE(unpacked(cut).has_value());
}

TEST_CASE("nodes with as many ranks are one block of the mapping") {
  CHECK(process_mapping({2}) == "(vector,(0,1,2))");
  CHECK(process_mapping({4, 4, 4}) == "(vector,(0,3,4))");
  CHECK(process_mapping({4, 4, 1}) == "(vector,(0,2,4),(2,1,1))");
  std::vector<int> uneven;
  for (int node = 0; node < 1000; ++node) uneven.push_back(1 + node % 2);
  CHECK(process_mapping(uneven).empty());
}

TEST_CASE("a library's name tells whose MPI it is") {
  const auto of = [](std::string_view library) {
    const Speech speech = speech_of_library(library);
    return std::string(speech.pmi ? "pmi" : "") + (speech.pmix ? "pmix" : "");
  };
  CHECK(of("libmpich.so.12") == "pmi");
  CHECK(of("libmpi.so.12") == "pmi");
  CHECK(of("/opt/impi/lib/libmpi.so.12.0.0") == "pmi");
  CHECK(of("libmpi.so.40") == "pmix");
  CHECK(of("/usr/lib/libmpi.so.40.30.4") == "pmix");
  CHECK(of("libpmix.so.2") == "pmix");
  CHECK(of("libmpi_abi.so.0") == "pmipmix");
  CHECK(of("libmpir.so.23").empty());
  CHECK(of("libc.so.6").empty());
}

TEST_CASE("a script that names mpi4py may have either MPI") {
  const std::string script = "from mpi4py import MPI\n", other = "import torch\n";
  CHECK(speech_of_file(script) == Speech{true, true, "it names mpi4py"});
  CHECK(speech_of_file(other) == Speech{});
  CHECK(speech_of_module("mpi4py.bench").pmix);
  CHECK(speech_of_module("mpi4pyx") == Speech{});
}

TEST_CASE("a line that starts Python names its script") {
  const auto of = [](const std::vector<std::string>& line) {
    return script_of_python(line).value_or("none");
  };
  CHECK(of({"/usr/bin/python3", "-u", "-W", "ignore", "a.py", "b.py"}) == "a.py");
  CHECK(of({"python3.11", "a.py"}) == "a.py");
  CHECK(of({"python3", "-c", "pass"}) == "none");
  CHECK(of({"sh", "a.py"}) == "none");
}

TEST_CASE("no file is too short or too wrong to be looked at") {
  std::string file =
      "\x7f"
      "ELF\x02\x01\x01";
  file.resize(64, '\xff');
  CHECK(speech_of_file(file) == Speech{});
  for (std::size_t size = 0; size <= file.size(); ++size) {
    CHECK(speech_of_file(std::string_view(file).substr(0, size)) == Speech{});
  }
}

}  // namespace dlaunch::launcher::pmi
