#pragma once

#include "launcher/output/line_filter.hpp"
#include "launcher/output/output_lines.hpp"
#include "launcher/output/told_lines.hpp"
#include "launcher/output/traceback_lines.hpp"
#include "launcher/output/voice.hpp"
#include "launcher/output/write_spans.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace dlaunch::launcher {

/// Pumps what the workers write to the launcher's own stdout and stderr, and into log files, on a
/// thread of its own: a terminal that blocks holds up the workers' output and nothing else. Text
/// that was read first is written first. The public members may be called from any thread.
class Output {
 public:
  /// A file that streams of several workers share.
  struct SharedLog {
    unique_fd fd;
    std::string path;  ///< For messages.
  };
  /// One stream of one worker, or both.
  struct Source {
    unique_fd pipe;  ///< The reading end.
    int rank = 0;
    Stream to = Stream::out;
    bool carries_errors = false;  ///< Its stderr is in it.
    std::string prefix;
    bool shown = true;     ///< Else it only goes to the log.
    unique_fd log;         ///< A copy, byte for byte; empty for none.
    std::string log_path;  ///< For messages.
    std::optional<LineFilter> filter;
    std::shared_ptr<SharedLog> filtered;  ///< Takes the lines that `filter` picks.
    std::optional<ToldLines> told;        ///< A host's launcher writes it, as others do.
  };

  /// Called on the pump's thread when a rank has begun a traceback; not for each of many in a row.
  using OnTraceback = std::function<void(int rank, Clock::time_point at)>;

  /// How the launcher's own streams are written.
  struct Manner {
    bool redraws = false;  ///< A terminal among them can redraw a row.
    bool colours = false;  ///< On a terminal each rank's prefix has a colour.
    Voice voice = {};      ///< The form of this class's own lines.
  };
  Output(int out_fd, int err_fd, Manner manner, OnTraceback on_traceback);
  ~Output();

  /// Whether both streams end in one terminal, file or pipe: then a worker's two streams keep their
  /// order if they come through one pipe.
  bool is_one_place() const { return surfaces_.one; }

  /// Streams that are added before they have output are read in the order of their first output.
  void add(std::vector<Source> sources);
  /// While it lives, all ready streams are read together every few milliseconds. Otherwise many
  /// workers started one after the other would wake the pump for each first word and each end, on a
  /// processor that the next start needs.
  class Pace {
   public:
    explicit Pace(Output* output);
    ~Pace();
    Pace(const Pace&) = delete;
    Pace& operator=(const Pace&) = delete;

   private:
    Output* output_;
  };
  /// A line of the launcher's own, to stderr.
  void say(std::string line);
  /// Shows the launcher's sentence in a row that replaces the one before; only where stderr is a
  /// terminal. An empty text ends the row, whose last text stays as a line.
  void show_row(std::string text);
  bool shows_rows() const { return surfaces_.err_is_terminal; }
  /// Calls `done` on the pump's thread once everything that the pipes hold now has been read.
  void catch_up(std::function<void()> done);
  /// To be called when no process is left that writes. Emits what the pipes still hold, ends all
  /// sources, then calls `done` on the pump's thread.
  void drain(std::function<void()> done);
  /// A rank's last lines on stderr, or on the pipe that carries both streams, of those that passed
  /// through here since `forget_tails`.
  std::vector<std::string> error_tail(int rank) const;
  /// Forgets these lines, and when the logs were written.
  void forget_tails();
  /// The number of a rank's bytes that have passed through here so far.
  std::uint64_t bytes_of(int rank) const;
  /// The times at which the parts of a log were written, roughly; the log is named by its path.
  std::vector<WriteSpans::Span> log_spans(const std::string& path) const;
  /// Whether output was lost because the console or a log could not be written, which has been
  /// said. A console that nobody reads any more does not count.
  bool incomplete() const { return incomplete_; }
  /// Nobody reads this stream of the launcher any more, as a write to it has found.
  bool is_reader_gone(Stream stream) const {
    return stream == Stream::out ? out_reader_gone_ : err_reader_gone_;
  }

 private:
  struct Added {
    std::size_t key = 0;
    Source source;
  };
  struct Said {
    std::string text;
    bool row = false;
  };
  struct Commands {
    std::vector<Said> said;
    std::vector<std::function<void()>> catch_ups;
    std::vector<std::function<void()>> drains;
  };
  struct Active {
    Source source;
    std::size_t number = 0;  ///< In lines_.
    TracebackLines tracebacks = {};
    std::optional<Clock::time_point> told = std::nullopt;  ///< When a traceback was last reported.
  };

  enum class Read { some, nothing, ended };

  void run(const std::stop_token& stop);
  void keep_pace(const std::stop_token& stop);
  bool wait_for_events(std::vector<std::size_t>& ready);
  void take_commands();
  void draw_row(const std::string& text);
  void measure_terminals();
  void start_added();
  void empty_pipes();
  Read read_some(Active& active);
  void show(Active& active, std::string_view bytes, Clock::time_point now);
  void tell_traceback(Active& active, Clock::time_point now);
  void end(std::size_t key);
  void log(Active& active, std::string_view bytes);
  void log_filtered(Active& active, std::string_view lines);
  std::string prefix_of(const Source& source) const;
  void say_error(const std::string& sentence);
  void say_log_ends(const std::string& path, const std::string& what);
  void write_pieces();
  static bool write_all(int fd, std::string_view text);
  void reader_gone(Stream stream);
  void cannot_write(Stream stream, int error);
  void wake();

  int out_fd_;
  int err_fd_;
  const Manner manner_;
  const Surfaces surfaces_;
  const OnTraceback on_traceback_;
  unique_fd epoll_;
  unique_fd wake_;

  mutable std::mutex mutex_;  ///< Guards what stands up to written_.
  std::size_t next_key_ = 1;
  std::vector<Added> added_;  ///< Watched, and not yet started.
  Commands commands_;
  bool paced_ = false;
  std::condition_variable_any unpaced_;
  std::map<int, std::vector<std::string>> tails_;
  std::map<std::string, WriteSpans> written_;  ///< By the log's path.
  std::map<int, std::uint64_t> bytes_;         ///< By rank.
  std::atomic<bool> incomplete_ = false;
  std::atomic<bool> out_reader_gone_ = false;
  std::atomic<bool> err_reader_gone_ = false;

  // The members below belong to the pump's thread.
  OutputLines lines_;
  std::map<std::size_t, Active> active_;
  std::optional<std::size_t> row_;  ///< The launcher's own, in lines_.
  std::string row_text_;            ///< The row's text, before it is cut to fit.
  std::vector<char> buffer_;
  std::vector<std::function<void()>> catching_up_;
  Pieces pieces_;
  bool out_broken_ = false;
  bool err_broken_ = false;

  std::jthread thread_;
};

}  // namespace dlaunch::launcher
