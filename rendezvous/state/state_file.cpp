#include "rendezvous/state/state_file.hpp"

#include "rendezvous/state/state_file_state.hpp"
#include "runtime/base/os/random.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

namespace dlaunch::rendezvous {
namespace {

/// "dlnc", by which file(1) and we recognise the file.
constexpr std::int64_t application = 0x646c6e63;
/// Version 1 lacks the last table.
constexpr std::int64_t schema_version = 2;

constexpr auto schema = std::to_array<std::string_view>({
    "CREATE TABLE service(one INTEGER PRIMARY KEY, memory INTEGER, incarnation INTEGER, "
    "epoch INTEGER, sum INTEGER)",
    "CREATE TABLE jobs(job BLOB PRIMARY KEY, incarnation INTEGER, epoch INTEGER, "
    "exit_code INTEGER, sum INTEGER) WITHOUT ROWID",
    "CREATE TABLE spaces(space INTEGER PRIMARY KEY, job BLOB, incarnation INTEGER, "
    "epoch INTEGER, sum INTEGER)",
    "CREATE TABLE keys(space INTEGER, key BLOB, value BLOB, owner INTEGER, lease INTEGER, "
    "sum INTEGER, PRIMARY KEY(space, key)) WITHOUT ROWID",
    "CREATE TABLE entries(space INTEGER, queue BLOB, number INTEGER, value BLOB, sum INTEGER, "
    "PRIMARY KEY(space, queue, number)) WITHOUT ROWID",
    "CREATE TABLE rounds(space INTEGER, gathers INTEGER, name BLOB, round INTEGER, block BLOB, "
    "too_big BLOB, sum INTEGER, PRIMARY KEY(space, gathers, name)) WITHOUT ROWID",
    "CREATE TABLE answers(space INTEGER, session INTEGER, slot INTEGER, number INTEGER, "
    "request INTEGER, type INTEGER, payload BLOB, sum INTEGER, "
    "PRIMARY KEY(space, session, slot)) WITHOUT ROWID",
    "CREATE TABLE drains(job BLOB PRIMARY KEY, why BLOB, sum INTEGER) WITHOUT ROWID",
});

std::string named(const std::string& path) { return "the state file " + name_in_quotes(path); }

/// SQLite would remove the log of a file that was moved away, and what it holds may be nowhere
/// else.
void require_log_has_file(const std::string& path) {
  std::error_code none;
  const auto size_of = [&](const std::string& file) {
    const auto size = std::filesystem::file_size(file, none);
    return none ? 0 : size;
  };
  const std::string log = own_path_of(path) + "-wal";
  if (!is_empty_state(size_of(path)) || size_of(log) == 0) return;
  throw refused_state(path, "is not there, but its log " + in_quotes(log) +
                                " is: put back the file that it belongs to, or move it away, too");
}

/// The file that the path names; none has inode 0.
FileIdentity identity_of(const std::string& path) {
  struct stat now {};
  if (::stat(path.c_str(), &now) != 0) return {};
  return {now.st_dev, now.st_ino};
}

/// Makes the file, readable by nobody else: it holds messages between programs. It is closed again
/// before SQLite locks it, since closing any descriptor of a file gives up all locks of a process.
void make_private(const std::string& path) {
  const unique_fd made(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (made) return;
  const int error = errno;
  const bool full = error == ENOSPC || error == EDQUOT;
  throw Error(full ? Errc::unreachable : Errc::refused,
              named(path) + " cannot be opened: " + errno_text(error));
}

}  // namespace

std::string own_path_of(const std::string& path) {
  constexpr int links_max = 40;  // As the kernel has it.
  std::filesystem::path own = path;
  std::error_code none;
  for (int i = 0; i < links_max && std::filesystem::is_symlink(own, none); ++i) {
    own = own.parent_path() / std::filesystem::read_symlink(own, none);
  }
  return own.string();
}

Error refused_state(const std::string& path, const std::string& why) {
  return {Errc::refused, named(path) + " " + why};
}

StateLost lost_state(const std::string& path, const sqlite::Failure& failure) {
  return {Errc::internal, named(path) + " cannot be written: " + failure.what() +
                              "; dlaunchd stops, so that it promises nothing that is not on disk"};
}

Error damaged_state(const std::string& path, const std::string& how) {
  return refused_state(path,
                       "is damaged (" + how +
                           "); put a backup in its place with 'dlaunchd restore', or move it away "
                           "to begin without what it holds");
}

Error cannot_open_state(const std::string& path, const sqlite::Failure& failure) {
  if (failure.in_use()) {
    return {Errc::unreachable,
            named(path) +
                " is in use by another process, such as a dlaunchd that runs; each needs a file "
                "of its own, and 'dlaunch ctl backup' saves one that runs"};
  }
  if (failure.damaged()) return damaged_state(path, failure.what());
  if (failure.no_space()) {
    return {Errc::unreachable,
            named(path) + " cannot be opened: no space left on device; make room and start again"};
  }
  return refused_state(path, std::string("cannot be opened: ") + failure.what());
}

// ---- Opening ----

StateFile::StateFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
StateFile::StateFile(StateFile&&) noexcept = default;
StateFile& StateFile::operator=(StateFile&&) noexcept = default;
StateFile::~StateFile() = default;

const std::string& StateFile::path() const { return state_->path; }
const std::string& StateFile::own_path() const { return state_->own_path; }

StateFile StateFile::open(const std::string& path) {
  require_log_has_file(path);
  make_private(path);
  try {
    auto state = std::make_unique<State>(path, sqlite::Connection::Mode::create);
    state->prepare(sqlite::Connection::Mode::create);
    return StateFile(std::move(state));
  } catch (const sqlite::Failure& failure) {
    throw cannot_open_state(path, failure);
  }
}

StateFile StateFile::open_existing(const std::string& path) {
  try {
    auto state = std::make_unique<State>(path, sqlite::Connection::Mode::existing);
    state->prepare(sqlite::Connection::Mode::existing);
    return StateFile(std::move(state));
  } catch (const sqlite::Failure& failure) {
    throw cannot_open_state(path, failure);
  }
}

/// Nothing is written before it is known that the file is ours. Several connections to one file in
/// WAL mode can lose what was checkpointed (SQLite 3.7.0 to 3.51.2): here there is never a second.
void StateFile::State::prepare(sqlite::Connection::Mode mode) {
  if (const auto damage = file.log_damage()) throw damaged_state(path, *damage);
  // What is only read stays as it is.
  if (mode == sqlite::Connection::Mode::existing) file.leave_log();
  file.execute("PRAGMA locking_mode=EXCLUSIVE");
  file.execute("PRAGMA trusted_schema=OFF");
  file.execute("PRAGMA cell_size_check=ON");
  const auto number = [&](const std::string& sql) {
    return std::stoll(file.ask(sql).value_or("0"));
  };
  const bool is_new = number("SELECT count(*) FROM sqlite_master") == 0 &&
                      number("PRAGMA application_id") == 0 && number("PRAGMA user_version") == 0;
  if (is_new && mode == sqlite::Connection::Mode::existing) throw refused_state(path, "is empty");
  if (!is_new) {
    if (number("PRAGMA application_id") != application) {
      throw refused_state(path, "is not dlaunchd's: another program made it; name another file");
    }
    version = number("PRAGMA user_version");
    if (version < 1 || version > schema_version) {
      throw refused_state(path, "has version " + std::to_string(version) +
                                    ", and this dlaunchd knows " + std::to_string(schema_version) +
                                    ": use the dlaunchd that made it");
    }
  }
  if (mode == sqlite::Connection::Mode::create && file.ask("PRAGMA journal_mode=WAL") != "wal") {
    throw refused_state(path, "cannot have a write-ahead log; is it on a local disk?");
  }
  file.execute("PRAGMA synchronous=FULL");
  file.execute("PRAGMA temp_store=MEMORY");
  if (is_new) create();
  check_schema();
  check_pages();
  if (mode == sqlite::Connection::Mode::create && version < schema_version) upgrade();
  prepare_statements();
  if (mode == sqlite::Connection::Mode::create) {
    opened_as = {identity_of(path), identity_of(file.log_path())};
  }
}

void StateFile::State::create() {
  file.execute("BEGIN EXCLUSIVE");
  for (const auto table : schema) file.execute(std::string(table));
  set_service = file.prepare("INSERT OR REPLACE INTO service VALUES(1, ?, ?, ?, ?)");
  memory = random_number();
  write_service();
  file.execute("PRAGMA application_id=" + std::to_string(application));
  file.execute("PRAGMA user_version=" + std::to_string(schema_version));
  file.execute("COMMIT");
  version = schema_version;
  // Written to the file itself, so that it stays recognisable if its log is lost.
  file.execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

/// A file of an earlier version is the daemon's own from then on.
void StateFile::State::upgrade() {
  file.execute("BEGIN EXCLUSIVE");
  file.execute(std::string(schema.back()));
  file.execute("PRAGMA user_version=" + std::to_string(schema_version));
  file.execute("COMMIT");
  version = schema_version;
}

/// A bit of the schema may have turned over, too.
void StateFile::State::check_schema() {
  sqlite::Statement tables = file.prepare("SELECT sql FROM sqlite_master ORDER BY rowid");
  std::vector<std::string> found;
  for (bool more = tables.run(); more; more = tables.next()) found.push_back(tables.text(0));
  const auto expected = std::span(schema).first(schema.size() - (has_drains() ? 0 : 1));
  if (!std::ranges::equal(found, expected)) throw damaged_state(path, "its tables are others");
}

void StateFile::State::check_pages() {
  const auto verdict = file.ask("PRAGMA quick_check(1)").value_or("no answer");
  if (verdict != "ok") throw damaged_state(path, verdict);
}

void StateFile::State::prepare_statements() {
  begin = file.prepare("BEGIN IMMEDIATE");
  commit = file.prepare("COMMIT");
  rollback = file.prepare("ROLLBACK");
  set_service = file.prepare("INSERT OR REPLACE INTO service VALUES(1, ?, ?, ?, ?)");
  find_job = file.prepare("SELECT incarnation, epoch, exit_code FROM jobs WHERE job=?");
  set_job = file.prepare("INSERT OR REPLACE INTO jobs VALUES(?, ?, ?, ?, ?)");
  erase_job = file.prepare("DELETE FROM jobs WHERE job=?");
  add_space = file.prepare("INSERT INTO spaces VALUES(?, ?, ?, ?, ?)");
  set_key = file.prepare("INSERT OR REPLACE INTO keys VALUES(?, ?, ?, ?, ?, ?)");
  erase_key = file.prepare("DELETE FROM keys WHERE space=? AND key=?");
  last_entry = file.prepare("SELECT max(number) FROM entries WHERE space=? AND queue=?");
  first_entry = file.prepare("SELECT min(number) FROM entries WHERE space=? AND queue=?");
  add_entry = file.prepare("INSERT INTO entries VALUES(?, ?, ?, ?, ?)");
  erase_entry = file.prepare("DELETE FROM entries WHERE space=? AND queue=? AND number=?");
  set_round = file.prepare("INSERT OR REPLACE INTO rounds VALUES(?, ?, ?, ?, ?, ?, ?)");
  set_answer = file.prepare("INSERT OR REPLACE INTO answers VALUES(?, ?, ?, ?, ?, ?, ?, ?)");
  if (has_drains()) {
    set_drain = file.prepare("INSERT OR REPLACE INTO drains VALUES(?, ?, ?)");
    erase_drain = file.prepare("DELETE FROM drains WHERE job=?");
  }
  forget_answers = file.prepare("DELETE FROM answers WHERE space=? AND session=?");
  for (const char* table : {"spaces", "keys", "entries", "rounds", "answers"}) {
    drop_space.push_back(file.prepare(std::string("DELETE FROM ") + table + " WHERE space=?"));
  }
}

// ---- Whether it is still there ----

bool StateFile::State::is_in_place() const {
  return !opened_as || *opened_as == std::array{identity_of(path), identity_of(file.log_path())};
}

/// The log may have lost its name, and would be taken for that of a file that came in this one's
/// place: all that it holds goes to the file, wherever that is now.
void StateFile::State::require_in_place() {
  if (is_in_place()) return;
  try {
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)");
  } catch (const sqlite::Failure&) {  // It stays in the log, then.
  }
  throw StateLost(Errc::internal, named(path) +
                                      " or its log was moved, removed or replaced while it was in "
                                      "use; dlaunchd stops, so that it promises nothing that is "
                                      "not kept there");
}

StateFile::State::~State() {
  try {
    require_in_place();
  } catch (const std::exception&) {  // Nothing was promised since the last write.
  }
}

// ---- When changes after a backup are gone ----

void StateFile::forget_memory() {
  State& s = *state_;
  StateContents ignored;
  try {
    s.load_jobs(ignored);
    s.memory = random_number();
    s.write_service();
  } catch (const sqlite::Failure& failure) {
    throw cannot_open_state(s.path, failure);
  }
}

}  // namespace dlaunch::rendezvous
