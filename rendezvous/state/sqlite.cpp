#include "rendezvous/state/sqlite.hpp"

#include "rendezvous/state/sqlite_log.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/phrases.hpp"

#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

namespace dlaunch::rendezvous::sqlite {
namespace {

int note_log_pages(void* pages, sqlite3*, const char*, int now) {
  *static_cast<int*>(pages) = now;
  return SQLITE_OK;
}

/// "unable to open database file: No such file or directory".
std::string with_reason(int code, const std::string& text, int system) {
  const bool of_system = (code & 0xff) == SQLITE_CANTOPEN || (code & 0xff) == SQLITE_IOERR;
  return of_system && system != 0 ? text + ": " + errno_text(system) : text;
}

bool is_locked_elsewhere(const char* path) {
  const unique_fd file(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  return file && ::fcntl(file.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

Failure::Failure(sqlite3* connection) noexcept
    : Failure(sqlite3_extended_errcode(connection), sqlite3_errmsg(connection),
              sqlite3_system_errno(connection)) {}

Failure::Failure(int code, const char* text, int system) noexcept
    : code_(code), system_errno_(system) {
  try {
    sentence_ = with_reason(code, text, system);
  } catch (const std::bad_alloc&) {  // The code tells.
  }
}

const char* Failure::what() const noexcept {
  return sentence_.empty() ? sqlite3_errstr(code_) : sentence_.c_str();
}

bool Failure::no_space() const {
  const bool of_disk =
      (code_ & 0xff) == SQLITE_IOERR && (system_errno_ == EDQUOT || system_errno_ == ENOSPC);
  return (code_ & 0xff) == SQLITE_FULL || of_disk;
}

bool Failure::no_memory() const {
  return (code_ & 0xff) == SQLITE_NOMEM || code_ == SQLITE_IOERR_NOMEM;
}

bool Failure::in_use() const {
  return (code_ & 0xff) == SQLITE_BUSY || (code_ & 0xff) == SQLITE_LOCKED;
}

bool Failure::damaged() const {
  return (code_ & 0xff) == SQLITE_CORRUPT || (code_ & 0xff) == SQLITE_NOTADB;
}

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement::Statement(sqlite3* connection, std::string_view sql) : connection_(connection) {
  sqlite3_stmt* made = nullptr;
  const int code = sqlite3_prepare_v3(connection, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &made, nullptr);
  statement_.reset(made);
  if (code != SQLITE_OK) throw Failure(connection);
}

bool Statement::next() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    done();
    return false;
  }
  Failure failure(connection_);
  done();
  throw failure;
}

void Statement::done() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
}

bool Statement::has_types(std::string_view types) const {
  const auto is = [&](int column, char wanted) {
    const bool may_be_null = wanted == 'I' || wanted == 'B';
    if (is_null(column)) return may_be_null;
    const int type = wanted == 'i' || wanted == 'I' ? SQLITE_INTEGER : SQLITE_BLOB;
    return sqlite3_column_type(statement_.get(), column) == type;
  };
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (!is(static_cast<int>(i), types[i])) return false;
  }
  return true;
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

BytesView Statement::bytes(int column) const {
  const auto* data = static_cast<const std::byte*>(sqlite3_column_blob(statement_.get(), column));
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return {data, data == nullptr ? 0 : static_cast<std::size_t>(size)};
}

std::string Statement::text(int column) const {
  const BytesView raw = bytes(column);
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

void Statement::bind(int place, std::int64_t value) {
  if (sqlite3_bind_int64(statement_.get(), place, value) != SQLITE_OK) throw Failure(connection_);
}

void Statement::bind(int place, BytesView value) {
  // Without an address it would be NULL.
  const void* const data = value.empty() ? "" : static_cast<const void*>(value.data());
  const int code = sqlite3_bind_blob64(statement_.get(), place, data, value.size(), SQLITE_STATIC);
  if (code != SQLITE_OK) throw Failure(connection_);
}

void Statement::bind(int place, const std::optional<BytesView>& value) {
  if (value) return bind(place, *value);
  if (sqlite3_bind_null(statement_.get(), place) != SQLITE_OK) throw Failure(connection_);
}

void Statement::bind(int place, const std::optional<std::int64_t>& value) {
  if (value) return bind(place, *value);
  if (sqlite3_bind_null(statement_.get(), place) != SQLITE_OK) throw Failure(connection_);
}

void Connection::Close::operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }

Connection::Connection(const std::string& path, Mode mode) {
  const int flags =
      SQLITE_OPEN_READWRITE | (mode == Mode::create ? SQLITE_OPEN_CREATE : SQLITE_OPEN_READWRITE);
  sqlite3* made = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &made,
                                   flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  connection_.reset(made);
  if (made == nullptr) throw Failure(code, "out of memory");
  if (code != SQLITE_OK) throw Failure(made);
  sqlite3_wal_hook(made, note_log_pages, log_pages_.get());
}

void Connection::checkpoint() {
  const int code = sqlite3_wal_checkpoint_v2(connection_.get(), nullptr, SQLITE_CHECKPOINT_PASSIVE,
                                             nullptr, nullptr);
  if (code != SQLITE_OK) throw Failure(connection_.get());
}

std::string Connection::log_path() const {
  return sqlite3_filename_wal(sqlite3_db_filename(connection_.get(), "main"));
}

/// Closing a descriptor of the file gives up all locks of a process: the connection has none yet.
std::optional<std::string> Connection::log_damage() const {
  if (is_locked_elsewhere(sqlite3_db_filename(connection_.get(), "main"))) {
    throw Failure(SQLITE_BUSY, sqlite3_errstr(SQLITE_BUSY));
  }
  const std::string log = log_path(), how = damage_of_log(log);
  if (how.empty()) return std::nullopt;
  return "its log " + in_quotes(log) + " " + how;
}

/// SQLite makes an empty log where there is none, and removes it when it closes the file.
void Connection::leave_log() {
  std::error_code none;
  if (!std::filesystem::exists(log_path(), none)) return;
  sqlite3_db_config(connection_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
}

void Connection::execute(const std::string& sql) {
  if (sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    throw Failure(connection_.get());
  }
}

std::optional<std::string> Connection::ask(const std::string& sql) {
  Statement statement = prepare(sql);
  if (!statement.run()) return std::nullopt;
  return statement.text(0);
}

bool Connection::in_transaction() const { return sqlite3_get_autocommit(connection_.get()) == 0; }

void PageCopy::Finish::operator()(sqlite3_backup* copy) const { sqlite3_backup_finish(copy); }

PageCopy::PageCopy(Connection& from, Connection& to)
    : into_(to.get()), copy_(sqlite3_backup_init(to.get(), "main", from.get(), "main")) {
  if (!copy_) throw Failure(into_);
}

/// The backup's own code, not the connection's: it reports errors of either file.
bool PageCopy::step(int pages) {
  const int code = sqlite3_backup_step(copy_.get(), pages);
  if (code == SQLITE_OK) return false;
  if (code == SQLITE_DONE) return true;
  throw Failure(code, sqlite3_errstr(code), sqlite3_system_errno(into_));
}

int PageCopy::pages() const { return sqlite3_backup_pagecount(copy_.get()); }

int PageCopy::pages_left() const { return sqlite3_backup_remaining(copy_.get()); }

}  // namespace dlaunch::rendezvous::sqlite
