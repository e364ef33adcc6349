#pragma once

#include "rendezvous/state/state_file.hpp"
#include "tests/support/state_text.hpp"
#include "tests/support/temporary_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <doctest/doctest.h>

/// A state file that a kill has left, and what is done to it.
namespace dlaunch::testing {

using namespace dlaunch::rendezvous;

inline std::string at(const TemporaryFolder& folder, const char* name) {
  return (folder.path() / name).string();
}

inline Bytes bytes_of(std::string_view text) {
  const BytesView raw = as_bytes(text);
  return {raw.begin(), raw.end()};
}

/// What comes of opening it: what it holds, or the sentence with which it is refused.
struct Opened {
  bool refused = false;
  std::string text;
};
inline Opened opened(const std::string& path) {
  try {
    StateFile file = StateFile::open_existing(path);
    return {false, shown(file.load())};
  } catch (const Error& error) {
    CHECK_MESSAGE(error.errc() == Errc::refused, error.what());
    return {true, error.what()};
  }
}

inline std::vector<std::vector<Change>> batches() {
  return {
      {change::JobOpened{"a", 7}, change::SpaceOpened{1, "a", 7, 3}, change::EpochClosed{"a", 3}},
      {change::Stored{1, "k", bytes_of("v"), 0, {}},
       change::Answered{1, 9, 0, 4, {}, bytes_of("")}},
      {change::Stored{1, "k", bytes_of("w"), 0, {}},
       change::Stored{1, "leased", bytes_of(""), 9, std::chrono::milliseconds(500)}},
      {change::Pushed{1, "q", bytes_of("1")}, change::Pushed{1, "q", bytes_of("2")},
       change::Pushed{1, "q", bytes_of("3")}, change::Answered{1, 9, 1, 5, {}, bytes_of("x")}},
      {change::Popped{1, "q"}, change::Erased{1, "leased"},
       change::Completed{1, true, "g", 2, std::make_shared<const Bytes>(bytes_of("block")), ""},
       change::Completed{1, false, "b", 0, nullptr, ""}},
      {change::JobOpened{"b", 8}, change::EpochClosed{"b", 9}, change::JobFinished{"b", 4}},
      {change::JobForgotten{"b"}, change::Stored{1, "long", Bytes(5000, std::byte{'l'}), 0, {}}},
  };
}

inline void copy(const std::string& from, const std::string& to) {
  std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
}

inline void flip(const std::string& path, std::uintmax_t at, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int old = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(old ^ (1 << bit)));
}

inline std::string bytes_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A file as a kill leaves it: all batches in its log, and what it held after each of them.
struct Killed {
  Killed() {
    StateFile file = StateFile::open(at(folder, "live.db"));
    states.push_back(shown(file.load()));
    for (const auto& batch : batches()) {
      REQUIRE(file.write(batch) == StateFile::Wrote::all);
      states.push_back(shown(file.load()));
      ends.push_back(std::filesystem::file_size(at(folder, "live.db-wal")));
    }
    copy(at(folder, "live.db"), path);
    copy(at(folder, "live.db-wal"), log);
  }
  /// How many batches it holds; -1 where it was refused.
  int batches_in(const std::string& file) const {
    const Opened now = opened(file);
    if (now.refused) return -1;
    const auto found = std::ranges::find(states, now.text);
    REQUIRE_MESSAGE(found != states.end(), now.text);
    return static_cast<int>(found - states.begin());
  }
  TemporaryFolder folder;
  std::string path = at(folder, "killed.db"), log = path + "-wal";
  std::vector<std::string> states;
  std::vector<std::uintmax_t> ends;  ///< Of the log, after each batch.
};

}  // namespace dlaunch::testing
