#pragma once

#include "rendezvous/state/sqlite.hpp"
#include "rendezvous/state/state_file.hpp"
#include "runtime/base/text_hash.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <sys/types.h>

/// The inside of StateFile, for the files that implement it and nobody else: state_file.cpp
/// opens, state_load.cpp reads, state_write.cpp writes, state_copy.cpp copies.
namespace dlaunch::rendezvous {

/// The checksum of a table's row. It covers the row's key and table, too, so that a row that got
/// another's is found.
template <class... Fields>
std::int64_t sum_of(std::string_view table, const Fields&... fields) {
  std::uint64_t sum = text_hash(table);
  const auto add = [&](const auto& field) {
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(field)>>) {
      std::array<char, 8> raw{};
      auto number = static_cast<std::uint64_t>(field);
      for (char& byte : raw) {
        byte = static_cast<char>(number & 0xff);
        number >>= 8;
      }
      sum = text_hash({raw.data(), raw.size()}, sum);
    } else {
      // The size goes in first, so that two fields cannot equal two others.
      sum = text_hash(std::to_string(field.size()) + ":", sum);
      sum = text_hash({reinterpret_cast<const char*>(field.data()), field.size()}, sum);
    }
  };
  (add(fields), ...);
  return static_cast<std::int64_t>(sum);
}

/// The path of the file that a link leads to, be it there or not; else the path itself. What
/// belongs to the file lies beside the file, as its log does.
std::string own_path_of(const std::string& path);

Error refused_state(const std::string& path, const std::string& why);
/// After a write of which it is not known what it did.
StateLost lost_state(const std::string& path, const sqlite::Failure& failure);
Error damaged_state(const std::string& path, const std::string& how);
Error cannot_open_state(const std::string& path, const sqlite::Failure& failure);

/// Which file a path names.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;

  bool operator==(const FileIdentity&) const = default;
};

struct StateFile::State {
  State(std::string at, sqlite::Connection::Mode mode)
      : path(std::move(at)), own_path(own_path_of(path)), file(path, mode) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  void prepare(sqlite::Connection::Mode mode);
  void create();
  void upgrade();
  bool has_drains() const { return version > 1; }
  void check_schema();
  void check_pages();
  void prepare_statements();
  /// Throws StateLost where the path, or the log's, names another file by now, or none.
  void require_in_place();
  bool is_in_place() const;
  /// Ends what has not been committed; nothing of it is made.
  void roll_back();
  void write_service();
  template <class Act>
  void change_job(const std::string& job, Act act);

  void apply(const change::JobOpened& c);
  void apply(const change::EpochClosed& c);
  void apply(const change::JobFinished& c);
  void apply(const change::JobForgotten& c);
  void apply(const change::Drained& c);
  void apply(const change::SpaceOpened& c);
  void apply(const change::SpaceDropped& c);
  void apply(const change::Stored& c);
  void apply(const change::Erased& c);
  void apply(const change::Pushed& c);
  void apply(const change::Popped& c);
  void apply(const change::Completed& c);
  void apply(const change::Answered& c);
  void apply(const change::Forgot& c);

  void load_jobs(StateContents& into);
  std::map<std::string, std::string> load_drains();
  using Spaces = std::map<change::Space, StateContents::Space*>;
  Spaces load_spaces(StateContents& into);
  void load_keys(const Spaces& into);
  void load_entries(const Spaces& into);
  void load_rounds(const Spaces& into);
  void load_answers(const Spaces& into);
  StateContents::Space& space_of(const Spaces& spaces, change::Space number) const;
  void require(bool good, const char* table) const {
    if (!good) throw damaged_state(path, std::string("the sum of a row of ") + table + " is wrong");
  }

  const std::string path, own_path;
  sqlite::Connection file;
  /// The file and its log, if both are written.
  std::optional<std::array<FileIdentity, 2>> opened_as;
  std::int64_t version = 0;  ///< Of its tables.
  /// The row of `service`: the highest numbers of forgotten jobs.
  std::uint64_t memory = 0, incarnation = 0, epoch = 0;

  sqlite::Statement begin, commit, rollback, set_service, find_job, set_job, erase_job, add_space,
      set_key, erase_key, last_entry, first_entry, add_entry, erase_entry, set_round, set_answer,
      set_drain, erase_drain, forget_answers;
  std::vector<sqlite::Statement> drop_space;
};

}  // namespace dlaunch::rendezvous
