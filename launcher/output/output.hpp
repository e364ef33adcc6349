#pragma once

#include "launcher/output/line_filter.hpp"
#include "launcher/output/output_lines.hpp"
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
  };

  /// Hears on the pump's thread that a rank has begun a traceback; of many in a row not of all.
  using OnTraceback = std::function<void(int rank, Clock::time_point at)>;

  /// How the launcher's own streams are written.
  struct Manner {
    bool redraws = false;  ///< What is a terminal can take a row back.
    bool colours = false;  ///< On a terminal each rank's prefix has a colour.
    Voice voice = {};      ///< For what is said from in here.
  };
  Output(int out_fd, int err_fd, Manner manner, OnTraceback on_traceback);
  ~Output();

  /// Both streams end in one terminal, file or pipe: there a worker's own keep their order if they
  /// come through one pipe.
  bool is_one_place() const { return surfaces_.one; }

  /// Streams are read in the order in which they first spoke, if they are added before they do.
  void add(std::vector<Source> sources);
  /// While it lives, what is ready is read every few milliseconds, all at once. Many workers that
  /// are started one after the other would wake the pump for each first word and each end, on a
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
  /// What the launcher says in a row that takes the place of the last one: only where stderr is a
  /// terminal. An empty text ends the row, and what it had stays as a line.
  void show_row(std::string text);
  bool shows_rows() const { return surfaces_.err_is_terminal; }
  /// When all has been read that the pipes hold now: calls `done` on the pump's thread.
  void catch_up(std::function<void()> done);
  /// When no process is left that writes: emits what the pipes still hold, ends all sources, then
  /// calls `done` on the pump's thread.
  void drain(std::function<void()> done);
  /// The last lines a rank wrote to stderr, or to the pipe that is both, of all that passed through
  /// here since `forget_tails`.
  std::vector<std::string> error_tail(int rank) const;
  /// Forgets these, and when the logs were written.
  void forget_tails();
  /// How much a rank has written so far that passed through here.
  std::uint64_t bytes_of(int rank) const;
  /// Roughly when which part of a log was written here, by its path.
  std::vector<WriteSpans::Span> log_spans(const std::string& path) const;
  /// Something was lost, which has been said: the console or a log could not be written. A console
  /// that nobody reads any more has lost nothing.
  bool incomplete() const { return incomplete_; }

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
    std::optional<Clock::time_point> told = std::nullopt;  ///< When one was told last.
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

  // From here on the pump's thread only.
  OutputLines lines_;
  std::map<std::size_t, Active> active_;
  std::optional<std::size_t> row_;  ///< The launcher's own, in lines_.
  std::string row_text_;            ///< What it shows, before it was made to fit.
  std::vector<char> buffer_;
  std::vector<std::function<void()>> catching_up_;
  Pieces pieces_;
  bool out_broken_ = false;
  bool err_broken_ = false;

  std::jthread thread_;
};

}  // namespace dlaunch::launcher
