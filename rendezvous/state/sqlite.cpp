#include "rendezvous/state/sqlite.hpp"

#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

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

// ---- The log's format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log ----

constexpr std::size_t log_header_bytes = 32, frame_header_bytes = 24;
/// What a disk writes as a whole, at least.
constexpr std::uint64_t sector_bytes = 512;

using Raw = std::span<const unsigned char>;

std::uint32_t big_endian(Raw raw, std::size_t at) {
  std::uint32_t number = 0;
  for (const unsigned char byte : raw.subspan(at, 4)) number = number << 8 | byte;
  return number;
}

/// The running checksum over the header and all frames.
struct LogSum {
  std::uint32_t first = 0, second = 0;

  static LogSum stored(Raw raw, std::size_t at) {
    return {big_endian(raw, at), big_endian(raw, at + 4)};
  }
  void add(Raw raw, bool big) {
    const auto word = [&](std::size_t at) {
      const std::uint32_t number = big_endian(raw, at);
      return big ? number : __builtin_bswap32(number);
    };
    for (std::size_t at = 0; at < raw.size(); at += 8) {
      first += word(at) + second;
      second += word(at + 4) + first;
    }
  }
  bool operator==(const LogSum&) const = default;
};

/// Reads a log from its beginning, as SQLite does, and beyond the frame at which SQLite ends.
class LogReader {
 public:
  explicit LogReader(const std::string& path)
      : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}

  /// What is wrong with it; empty where nothing is.
  std::string damage() {
    if (!file_ || read(header_) < header_.size()) return {};
    const std::uint32_t magic = big_endian(header_, 0), page = big_endian(header_, 8);
    big_ = (magic & 1) != 0;
    sum_.add(Raw(header_).first(24), big_);
    const bool sized = page >= 512 && page <= 65536 && (page & (page - 1)) == 0;
    if ((magic | 1) != 0x377f0683 || !sized || sum_ != LogSum::stored(header_, 24)) {
      return only_zeros() ? "" : "has no good header";
    }
    frame_.resize(frame_header_bytes + page);
    while (read(frame_) == frame_.size()) note_frame();
    if (!lost_) return {};
    return "is damaged at frame " + std::to_string(bad_) + ", byte " +
           std::to_string(log_header_bytes + (bad_ - 1) * frame_.size()) + ": " +
           plural(static_cast<long>(unused_), "frame") + " behind it cannot be used";
  }

 private:
  /// Less than what was asked for at the log's end only.
  std::size_t read(std::span<unsigned char> into) {
    std::size_t got = 0;
    while (got < into.size()) {
      const ssize_t count = ::pread(file_.get(), into.data() + got, into.size() - got,
                                    static_cast<off_t>(offset_ + got));
      if (count < 0) throw Failure(SQLITE_IOERR, "its log cannot be read", errno);
      if (count == 0) break;
      got += static_cast<std::size_t>(count);
    }
    offset_ += got;
    return got;
  }
  /// What a loss of power may leave of a log that was just made.
  bool only_zeros() {
    const auto is_zero = [](unsigned char byte) { return byte == 0; };
    if (!std::ranges::all_of(header_, is_zero)) return false;
    std::array<unsigned char, 4096> more{};
    for (std::size_t got = more.size(); got == more.size();) {
      got = read(more);
      if (!std::ranges::all_of(Raw(more).first(got), is_zero)) return false;
    }
    return true;
  }
  /// A frame is written only once the transaction before it is synced. So one that continues the
  /// sum of a commit proves that this commit, and all before it, was whole: what is bad there was
  /// damaged later. Nothing follows the last transaction, of which a loss of power may leave any
  /// part, and remains of another log have other salts.
  void note_frame() {
    ++number_;
    const Raw frame = frame_;
    const bool ours = std::ranges::equal(frame.subspan(8, 8), Raw(header_).subspan(16, 8)) &&
                      big_endian(frame, 0) != 0;
    sum_.add(frame.first(8), big_);
    sum_.add(frame.subspan(frame_header_bytes), big_);
    const LogSum stored = LogSum::stored(frame, 16);
    const bool continues = ours && sum_ == stored;
    if (!continues && bad_ == 0) bad_ = number_;
    if (bad_ != 0 && number_ > bad_) {
      unused_ += ours ? 1 : 0;
      lost_ = lost_ || (continues && behind_commit_);
    }
    // The head of a bad frame is believed where a disk writes it as a whole.
    const bool head_is_whole =
        (offset_ - frame.size()) % sector_bytes <= sector_bytes - frame_header_bytes;
    behind_commit_ = big_endian(frame, 4) != 0 && ours && (continues || head_is_whole);
    sum_ = stored;
  }

  const unique_fd file_;
  std::uint64_t offset_ = 0;
  std::array<unsigned char, log_header_bytes> header_{};
  std::vector<unsigned char> frame_;
  bool big_ = false;  ///< The sum is over big-endian words.
  LogSum sum_;
  std::uint64_t number_ = 0, bad_ = 0, unused_ = 0;  ///< Counted from 1.
  bool behind_commit_ = false, lost_ = false;
};

bool is_locked_elsewhere(const char* path) {
  const unique_fd file(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  return file && ::fcntl(file.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

Failure::Failure(sqlite3* connection)
    : Failure(sqlite3_extended_errcode(connection), sqlite3_errmsg(connection),
              sqlite3_system_errno(connection)) {}

Failure::Failure(int code, const std::string& text, int system)
    : std::runtime_error(with_reason(code, text, system)), code_(code), system_errno_(system) {}

bool Failure::no_space() const {
  const bool of_disk =
      (code_ & 0xff) == SQLITE_IOERR && (system_errno_ == EDQUOT || system_errno_ == ENOSPC);
  return (code_ & 0xff) == SQLITE_FULL || of_disk;
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
  const Failure failure(connection_);
  done();
  throw failure;
}

void Statement::done() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
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
  const std::string log = log_path(), how = LogReader(log).damage();
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
