#include "launcher/pmi/core/node_ranks.hpp"

#include "runtime/base/bytes.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace dlaunch::launcher::pmi {
namespace {

// The limits of MPICH's own launcher, which programs rely on.
constexpr int name_bytes_max = 256;
constexpr int key_bytes_max = 64;
constexpr int value_bytes_max = 1024;
/// The most bytes that all ranks of a node may put, and so that a fence carries.
constexpr std::size_t node_bytes_max = 8u << 20;

int number_in(std::string_view text, int otherwise) {
  int number = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Command failed(std::string name, std::string_view why) {
  return {std::move(name), {{"rc", "-1"}, {"msg", std::string(why)}}};
}

/// PMI-1 separates fields by spaces.
std::string as_word(std::string_view text) {
  std::string word(text);
  std::ranges::replace(word, ' ', '_');
  return word;
}

}  // namespace

NodeRanks::NodeRanks(Setting setting)
    : setting_(std::move(setting)), ranks_(static_cast<std::size_t>(setting_.local_size)) {}

Effects NodeRanks::received(int rank, std::string_view bytes) {
  of(rank).came.append(bytes);
  for (;;) {
    auto taken = take_command(of(rank).came, of(rank).version);
    if (const auto* garbage = std::get_if<Garbage>(&taken)) {
      say(name(rank) + " has sent " + garbage->what +
          " where PMI was expected; its PMI_FD is closed");
      of(rank).came.clear();
      effects_.push_back(HangUp{rank});
      break;
    }
    const auto& command = std::get<std::optional<Command>>(taken);
    if (!command) break;
    carry_out(rank, *command);
  }
  return std::exchange(effects_, {});
}

void NodeRanks::carry_out(int rank, const Command& command) {
  if (command.name == "init") return begin(rank, command);
  of(rank).version == Version::one ? carry_out_one(rank, command) : carry_out_two(rank, command);
}

/// Answers the first command. PMI-2 writes it, and its answer, as PMI-1 does.
void NodeRanks::begin(int rank, const Command& command) {
  const bool two = command.get("pmi_version") == "2";
  effects_.push_back(Send{
      rank,
      written(
          {"response_to_init",
           {{"pmi_version", two ? "2" : "1"}, {"pmi_subversion", two ? "0" : "1"}, {"rc", "0"}}},
          Version::one)});
  of(rank).version = two ? Version::two : Version::one;
  of(rank).stage = Stage::inside;
}

void NodeRanks::carry_out_one(int rank, const Command& command) {
  const auto reply = [&](Command with) { answer(rank, command, std::move(with)); };
  if (command.name == "get_maxes") {
    reply({"maxes",
           {{"kvsname_max", std::to_string(name_bytes_max)},
            {"keylen_max", std::to_string(key_bytes_max)},
            {"vallen_max", std::to_string(value_bytes_max)}}});
  } else if (command.name == "get_appnum") {
    reply({"appnum", {{"appnum", "0"}}});
  } else if (command.name == "get_my_kvsname") {
    reply({"my_kvsname", {{"kvsname", setting_.job}}});
  } else if (command.name == "get_universe_size") {
    reply({"universe_size", {{"size", std::to_string(setting_.world_size)}}});
  } else if (command.name == "put") {
    put(rank, command, "put_result");
  } else if (command.name == "get") {
    bool found = false;
    const std::string value(look_up(command.get("key"), found));
    if (!found) {
      reply({"get_result",
             {{"rc", "-1"},
              {"msg", "key_" + as_word(command.get("key")) + "_not_found"},
              {"value", "unknown"}}});
    } else {
      reply({"get_result", {{"rc", "0"}, {"msg", "success"}, {"value", value}}});
    }
  } else if (command.name == "barrier_in") {
    enter_fence(rank, command);
  } else if (command.name == "finalize") {
    of(rank).stage = Stage::finalized;
    reply({"finalize_ack", {}});
  } else if (command.name == "abort") {
    abort(rank, number_in(command.get("exitcode"), 1), command.get("message"));
  } else if (command.name == "spawn") {
    refuse(rank, command, "spawn_result", "MPI_Comm_spawn");
  } else if (command.name == "publish_name") {
    refuse(rank, command, "publish_result", "MPI_Publish_name");
  } else if (command.name == "unpublish_name") {
    refuse(rank, command, "unpublish_result", "MPI_Unpublish_name");
  } else if (command.name == "lookup_name") {
    refuse(rank, command, "lookup_result", "MPI_Lookup_name");
  } else {
    reply(failed(command.name + "_result", "unknown_command"));
  }
}

void NodeRanks::carry_out_two(int rank, const Command& command) {
  const std::string name = command.name + "-response";
  const auto reply = [&](std::vector<Command::Field> fields) {
    fields.emplace_back("rc", "0");
    answer(rank, command, {name, std::move(fields)});
  };
  const auto reply_value = [&](std::string_view value, bool found) {
    if (!found) return reply({{"found", "FALSE"}});
    reply({{"found", "TRUE"}, {"value", std::string(value)}});
  };
  if (command.name == "fullinit") {
    reply({{"pmi-version", "2"},
           {"pmi-subversion", "0"},
           {"rank", std::to_string(setting_.first_rank + rank)},
           {"size", std::to_string(setting_.world_size)},
           {"appnum", "0"},
           {"debugged", "FALSE"},
           {"pmiverbose", "FALSE"}});
  } else if (command.name == "job-getid") {
    reply({{"jobid", setting_.job}});
  } else if (command.name == "kvs-put") {
    put(rank, command, name);
  } else if (command.name == "kvs-get" || command.name == "info-getjobattr") {
    bool found = false;
    const std::string_view value = look_up(command.get("key"), found);
    if (!found && command.get("key") == "universeSize") {
      return reply_value(std::to_string(setting_.world_size), true);
    }
    reply_value(value, found);
  } else if (command.name == "kvs-fence") {
    enter_fence(rank, command);
  } else if (command.name == "info-putnodeattr") {
    node_attributes_.insert_or_assign(std::string(command.get("key")),
                                      std::string(command.get("value")));
    reply({});
    for (int other = 0; other < setting_.local_size; ++other) {
      auto& waits = of(other).waits;
      if (waits && waits->get("key") == command.get("key")) {
        node_attribute(other, *std::exchange(waits, std::nullopt));
      }
    }
  } else if (command.name == "info-getnodeattr") {
    node_attribute(rank, command);
  } else if (command.name == "finalize") {
    of(rank).stage = Stage::finalized;
    reply({});
  } else if (command.name == "abort") {
    abort(rank, 1, command.get("msg"));
  } else if (command.name == "spawn") {
    refuse(rank, command, name, "MPI_Comm_spawn");
  } else if (command.name == "name-publish" || command.name == "name-unpublish") {
    refuse(rank, command, name, "MPI_Publish_name");
  } else if (command.name == "name-lookup") {
    refuse(rank, command, name, "MPI_Lookup_name");
  } else {
    answer(rank, command, {name, {{"rc", "1"}, {"errmsg", "unknown command"}}});
  }
}

void NodeRanks::put(int rank, const Command& command, std::string response) {
  const std::string_view key = command.get("key"), value = command.get("value");
  const bool two = of(rank).version == Version::two;
  if (key.empty() || bytes_ + key.size() + value.size() > node_bytes_max) {
    const std::string why = key.empty() ? "no_key" : "the_node_has_put_more_than_8_MiB";
    if (!key.empty())
      say(name(rank) +
          ": the MPI ranks of this node have put more than 8 MiB by PMI, which is the limit");
    return answer(rank, command,
                  two ? Command{std::move(response), {{"rc", "1"}, {"errmsg", why}}}
                      : failed(std::move(response), why));
  }
  bytes_ += key.size() + value.size();
  keys_.insert_or_assign(std::string(key), std::string(value));
  unsent_.insert_or_assign(std::string(key), std::string(value));
  answer(rank, command,
         two ? Command{std::move(response), {{"rc", "0"}}}
             : Command{std::move(response), {{"rc", "0"}, {"msg", "success"}}});
}

std::string_view NodeRanks::look_up(std::string_view key, bool& found) const {
  for (const auto* keys : {&keys_, &setting_.given}) {
    const auto known = keys->find(key);
    found = known != keys->end();
    if (found) return known->second;
  }
  return {};
}

/// Looks a node attribute up; with "wait" the answer comes when a rank of the node has put it.
void NodeRanks::node_attribute(int rank, const Command& command) {
  const auto known = node_attributes_.find(command.get("key"));
  std::vector<Command::Field> fields{{"found", known == node_attributes_.end() ? "FALSE" : "TRUE"}};
  if (known != node_attributes_.end()) {
    fields.emplace_back("value", known->second);
  } else if (command.get("wait") == "TRUE") {
    of(rank).waits = command;
    return;
  }
  fields.emplace_back("rc", "0");
  answer(rank, command, {command.name + "-response", std::move(fields)});
}

void NodeRanks::enter_fence(int rank, const Command& command) {
  of(rank).in_fence = command;
  look_for_gone();
  if (!broken_.empty()) return leave_fence();
  const bool all =
      std::ranges::all_of(ranks_, [](const Rank& each) { return each.in_fence.has_value(); });
  if (!all) return;
  is_out_ = true;
  effects_.push_back(Fence{fence_, packed(std::exchange(unsent_, {}))});
}

/// Breaks the fences if a rank has ended, since it cannot come.
void NodeRanks::look_for_gone() {
  for (int rank = 0; rank < setting_.local_size && broken_.empty(); ++rank) {
    if (of(rank).gone) break_fences(name(rank) + " has ended and cannot come");
  }
}

/// Breaks this fence and all later ones, and says so once, although programs that go on may meet
/// the next one.
void NodeRanks::break_fences(std::string why) {
  std::vector<int> waiting;
  for (int rank = 0; rank < setting_.local_size; ++rank) {
    if (of(rank).in_fence) waiting.push_back(setting_.first_rank + rank);
  }
  say(ranks_text(waiting) + (waiting.size() == 1 ? " waits" : " wait") +
      " for all ranks in MPI_Init or MPI_Finalize in vain: " + why);
  broken_ = std::move(why);
}

Effects NodeRanks::fenced(std::uint64_t number, const std::vector<Bytes>& pairs) {
  if (number != fence_ || !is_out_) return {};
  for (const Bytes& of_node : pairs) {
    auto put = unpacked(of_node);
    if (!put) return fence_failed(number, "another node has sent what cannot be read");
    for (auto& [key, value] : *put) keys_.insert_or_assign(key, std::move(value));
  }
  leave_fence();
  return std::exchange(effects_, {});
}

Effects NodeRanks::fence_failed(std::uint64_t number, std::string_view why) {
  if (number != fence_ || !is_out_) return {};
  break_fences(std::string(why));
  leave_fence();
  return std::exchange(effects_, {});
}

/// Answers the ranks that are in the fence.
void NodeRanks::leave_fence() {
  for (int rank = 0; rank < setting_.local_size; ++rank) {
    auto& in_fence = of(rank).in_fence;
    if (!in_fence) continue;
    const Command asked = *std::exchange(in_fence, std::nullopt);
    const bool two = of(rank).version == Version::two;
    if (!broken_.empty()) {
      answer(rank, asked,
             two ? Command{"kvs-fence-response", {{"rc", "1"}, {"errmsg", broken_}}}
                 : failed("barrier_out", as_word(broken_)));
    } else if (two) {
      answer(rank, asked, {"kvs-fence-response", {{"rc", "0"}}});
    } else {
      answer(rank, asked, {"barrier_out", {}});
    }
  }
  is_out_ = false;
  ++fence_;
}

void NodeRanks::abort(int rank, int exit_code, std::string_view message) {
  of(rank).stage = Stage::aborted;
  say(abort_text(name(rank), exit_code, message));
  effects_.push_back(Abort{rank, exit_code});
}

void NodeRanks::refuse(int rank, const Command& command, std::string response,
                       std::string_view what) {
  say(refusal_text(name(rank), what));
  const std::string why = std::string(what) + "_is_refused_by_dlaunch";
  answer(rank, command,
         of(rank).version == Version::two
             ? Command{std::move(response), {{"rc", "1"}, {"errmsg", why}}}
             : failed(std::move(response), why));
}

/// Answers a rank. The threads of a PMI-2 program know their answers by the field thrid.
void NodeRanks::answer(int rank, const Command& asked, Command command) {
  if (of(rank).gone) return;
  const std::string_view thread = asked.get("thrid");
  if (!thread.empty()) command.fields.emplace(command.fields.begin(), "thrid", thread);
  effects_.push_back(Send{rank, written(command, of(rank).version)});
}

Effects NodeRanks::ended(int rank) {
  of(rank).gone = true;
  of(rank).in_fence.reset();
  of(rank).waits.reset();
  const bool someone_waits =
      std::ranges::any_of(ranks_, [](const Rank& other) { return other.in_fence.has_value(); });
  if (someone_waits && !is_out_) {
    look_for_gone();
    leave_fence();
  }
  return std::exchange(effects_, {});
}

std::string NodeRanks::name(int rank) const {
  return "rank " + std::to_string(setting_.first_rank + rank);
}

std::string abort_text(std::string_view rank, int exit_code, std::string_view message) {
  // The words of MPICH and Open MPI for an abort without a message.
  const bool silent = message.empty() || message == "abort" || message == "N/A";
  return std::string(rank) + " called MPI_Abort, code " + std::to_string(exit_code) +
         (silent ? "" : ": " + clipped(message));
}

std::string refusal_text(std::string_view rank, std::string_view what) {
  const bool spawns = what == "MPI_Comm_spawn";
  return std::string(rank) + ": " + std::string(what) + " is refused: " +
         (spawns ? "dlaunch starts all ranks of a job at once; start as many as are needed "
                   "(--nproc-per-node)"
                 : "dlaunch keeps no names for programs that connect later");
}

// ---- What travels ----

Bytes packed(const std::map<std::string, std::string>& pairs) {
  Bytes bytes;
  ByteWriter writer(bytes);
  for (const auto& [key, value] : pairs) {
    writer.text(key);
    writer.text(value);
  }
  return bytes;
}

std::optional<std::map<std::string, std::string>> unpacked(BytesView bytes) {
  std::map<std::string, std::string> pairs;
  ByteReader reader(bytes);
  while (reader.ok() && reader.left() > 0) {
    std::string key(reader.text(node_bytes_max));
    pairs.insert_or_assign(std::move(key), std::string(reader.text(node_bytes_max)));
  }
  if (!reader.ok()) return std::nullopt;
  return pairs;
}

std::string process_mapping(const std::vector<int>& ranks_of_nodes) {
  std::string text = "(vector";
  for (std::size_t first = 0; first < ranks_of_nodes.size();) {
    std::size_t end = first;
    while (end < ranks_of_nodes.size() && ranks_of_nodes[end] == ranks_of_nodes[first]) ++end;
    text += ",(" + std::to_string(first) + "," + std::to_string(end - first) + "," +
            std::to_string(ranks_of_nodes[first]) + ")";
    first = end;
  }
  text += ")";
  return text.size() < value_bytes_max ? text : "";
}

}  // namespace dlaunch::launcher::pmi
