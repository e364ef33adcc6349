#pragma once

#include <dlaunch/store.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_backup;
struct sqlite3_stmt;

/// A thin layer over SQLite for the state file. One thread at a time.
namespace dlaunch::rendezvous::sqlite {

/// A failure of SQLite. Caught within this folder, where it becomes an Error or an answer. Without
/// memory for its sentence it still has its code: what has failed is not taken for something else.
class Failure : public std::exception {
 public:
  /// The connection's message about its last call.
  explicit Failure(sqlite3* connection) noexcept;
  /// `system` is the errno behind it, and is told where SQLite's text does not have it.
  Failure(int code, const char* text, int system = 0) noexcept;

  const char* what() const noexcept override;
  bool no_space() const;   ///< The disk is full, or a quota.
  bool no_memory() const;  ///< SQLite got none.
  bool in_use() const;     ///< Another process has the file.
  bool damaged() const;    ///< It is no database, or a broken one.

 private:
  int code_ = 0;
  int system_errno_ = 0;
  std::string sentence_;  ///< Empty: there was no memory for it.
};

/// A statement that is prepared once and run many times.
class Statement {
 public:
  Statement() = default;
  Statement(sqlite3* connection, std::string_view sql);

  /// Binds all parameters in their order, then runs: true where there is a row. Parameters are
  /// borrowed until the next call of run() or done().
  template <class... Values>
  bool run(const Values&... values) {
    done();
    int place = 0;
    (bind(++place, values), ...);
    return next();
  }
  bool next();
  /// Releases the row and the parameters. A run() without a row does so itself.
  void done();

  /// Whether the row's columns are of these types, a letter for each: 'i' an integer, 'b' bytes,
  /// 'I' and 'B' the same or NULL. SQLite gives a value of any type as any other.
  bool has_types(std::string_view types) const;
  std::int64_t integer(int column) const;
  std::uint64_t number(int column) const { return static_cast<std::uint64_t>(integer(column)); }
  bool is_null(int column) const;
  /// Valid until the next call.
  BytesView bytes(int column) const;
  std::string text(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  void bind(int place, std::int64_t value);
  void bind(int place, std::uint64_t value) { bind(place, static_cast<std::int64_t>(value)); }
  void bind(int place, BytesView value);
  void bind(int place, const std::optional<BytesView>& value);
  void bind(int place, const std::optional<std::int64_t>& value);
  void bind(int place, std::string_view value) { bind(place, as_bytes_of(value)); }
  static BytesView as_bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
  }

  sqlite3* connection_ = nullptr;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

/// The only connection to a file.
class Connection {
 public:
  enum class Mode { create, existing };
  Connection(const std::string& path, Mode mode);

  void execute(const std::string& sql);
  /// The first column of its first row, or nothing.
  std::optional<std::string> ask(const std::string& sql);
  Statement prepare(std::string_view sql) { return {connection_.get(), sql}; }
  bool in_transaction() const;
  /// How many pages the log had after the last commit. Only checkpoint() moves them to the file:
  /// SQLite would otherwise do it by itself, and not report a failure.
  int log_pages() const { return *log_pages_; }
  void checkpoint();
  /// The path of the log, as SQLite names it.
  std::string log_path() const;
  /// What is wrong with the log, for a sentence; nullopt where nothing is. SQLite does not tell: it
  /// drops everything behind the first bad frame. To be asked before any other call. Throws Failure
  /// where another process has the file.
  std::optional<std::string> log_damage() const;
  /// A log that is there now stays as it is, also when the connection is closed.
  void leave_log();
  sqlite3* get() const { return connection_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* connection) const;
  };
  std::unique_ptr<int> log_pages_ = std::make_unique<int>(0);  ///< SQLite writes there.
  std::unique_ptr<sqlite3, Close> connection_;
};

/// Copies all pages of one file to an empty one, some at a time, including those that the first
/// connection writes meanwhile. Both connections outlive it.
class PageCopy {
 public:
  PageCopy(Connection& from, Connection& to);
  /// Copies so many more pages; true once the other file is whole.
  bool step(int pages);
  int pages() const;
  int pages_left() const;

 private:
  struct Finish {
    void operator()(sqlite3_backup* copy) const;
  };
  sqlite3* into_ = nullptr;
  std::unique_ptr<sqlite3_backup, Finish> copy_;
};

}  // namespace dlaunch::rendezvous::sqlite
