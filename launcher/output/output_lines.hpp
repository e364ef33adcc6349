#pragma once

#include <dlaunch/error.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::launcher {

/// The stream that a line goes to.
enum class Stream { out, err };

/// Text for one of the launcher's own streams, in order of emission.
struct Piece {
  Stream to = Stream::out;
  std::string text;
};
using Pieces = std::vector<Piece>;

/// The places where the launcher's own streams end.
struct Surfaces {
  bool one = false;  ///< Both in the same terminal, file or pipe.
  bool out_is_terminal = false;
  bool err_is_terminal = false;
};

/// The prefix in the rank's colour, its blanks left plain; ranks that stand side by side differ.
std::string coloured_prefix(std::string_view prefix, int rank);

/// Merges what many workers write into whole lines, each with its writer's prefix: pure, no
/// descriptor and no clock, not thread-safe. A line is emitted when its end arrives, so lines come
/// out in the order in which they were completed.
///
/// A line without an end yet is shown on a terminal after `partial_delay` (a prompt), and another
/// writer then begins a new line. Elsewhere no other writer tears a line that is ended within
/// `line_patience`: it is shown early only while all others are quiet, and then they wait for it.
///
/// Text that '\r' has gone back over is progress, of which only the last state counts. A terminal
/// shows the states in place, one writer's at a time; elsewhere a state is a line, once in a while,
/// and when the line ends.
class OutputLines {
 public:
  static constexpr std::size_t line_bytes_max = 64u << 10;  ///< A longer line is split and marked.
  static constexpr std::size_t tail_lines_max = 20;
  static constexpr std::size_t tail_line_bytes_max = 1u << 10;
  static constexpr auto partial_delay = std::chrono::milliseconds(100);
  static constexpr auto line_patience = std::chrono::seconds(5);
  /// Other writers count as quiet after so long without output.
  static constexpr auto quiet_after = std::chrono::seconds(1);
  /// The most bytes of others that are held back for a begun line; beyond it they no longer wait.
  static constexpr std::size_t held_bytes_max = 256u << 10;
  /// The pause between two states of one line that are written as lines: doubled each time, from
  /// the first value to the last.
  static constexpr auto state_interval_first = std::chrono::seconds(10);
  static constexpr auto state_interval_last = std::chrono::seconds(60);
  /// A terminal turns to another writer's progress when the shown one has not moved for so long.
  static constexpr auto progress_stale_after = std::chrono::seconds(2);

  explicit OutputLines(Surfaces surfaces);

  /// Sets the width of the terminal behind a stream; 0: unknown. Progress is cut to it.
  void resize(Stream to, std::size_t columns) { surface_of(to).columns = columns; }
  /// 0: not known.
  std::size_t columns(Stream to) { return surface_of(to).columns; }

  struct Writer {
    Stream to = Stream::out;
    std::string prefix;
    bool shown = true;  ///< Else nothing is emitted; the tail is kept all the same.
    bool keeps_tail = false;
  };
  /// Returns the new source's number, which may be that of an ended one.
  std::size_t add(Writer writer);
  /// Bytes that a source wrote.
  void feed(std::size_t source, std::string_view bytes, Clock::time_point now, Pieces& out);
  /// The source has ended; an unfinished line gets an end.
  void end(std::size_t source, Clock::time_point now, Pieces& out);
  /// A line of the launcher's own, which waits for nobody's line.
  void say(Stream to, std::string_view line, Pieces& out);
  /// Emits what has waited long enough.
  void flush_due(Clock::time_point now, Pieces& out);
  /// The time at which flush_due is next needed.
  std::optional<Clock::time_point> next_deadline() const;

  /// The last lines of a source that keeps them, without prefixes and line ends; available after
  /// its end, too, until the next `add`.
  std::vector<std::string> tail(std::size_t source) const;

 private:
  struct Source {
    Writer writer;
    bool ended = false;
    std::string partial;  ///< Text of the current line not emitted yet, or the state of progress.
    Clock::time_point begun{};  ///< When the current line began.
    /// When the oldest text in `partial` that is still to be shown came.
    Clock::time_point partial_since{};
    Clock::time_point moved{};  ///< When its last bytes came.
    bool fresh = false;         ///< Something in `partial` is to be shown.
    bool returned = false;      ///< '\r' went back over a part of the current line.
    /// The pause before the next state, once a state of the current line was written as a line.
    std::optional<Clock::duration> state_interval;
    std::string tail_begin;  ///< Text emitted of the current line, for the tail.
    std::vector<std::string> tail;
  };
  struct Surface {
    bool terminal = false;
    std::size_t columns = 0;
    std::optional<std::size_t> open;  ///< The source whose unfinished line stands at the end.
    bool progress = false;            ///< That line is a state of progress, to be overwritten.
    Pieces held;                      ///< Text that waits for the end of the open line.
    std::size_t held_bytes = 0;
    std::optional<std::size_t> speaker;  ///< The source that wrote last, and when.
    Clock::time_point spoke = Clock::time_point::min();
    Clock::time_point others_spoke = Clock::time_point::min();  ///< The last before `speaker`.
  };

  Surface& surface_of(Stream to) { return surfaces_[one_ || to == Stream::out ? 0 : 1]; }
  const Surface& surface_of(Stream to) const {
    return surfaces_[one_ || to == Stream::out ? 0 : 1];
  }
  static bool is_progress(const Source& source);
  static void keep_last_state(Source& source);
  void begin_line(Source& source, Clock::time_point now);
  bool is_at_rest(const Source& source) const;
  void take_lines(std::size_t number, std::string_view lines, Clock::time_point now, Pieces& out);
  void take_plain(std::size_t number, std::string_view lines, Clock::time_point now, Pieces& out);
  void take_line(std::size_t number, std::string_view rest, Clock::time_point now, Pieces& out);
  void emit_line(std::size_t number, std::string_view first, std::string_view second,
                 std::string_view mark, Clock::time_point now, Pieces& out);
  Pieces& make_room(Surface& surface, Clock::time_point now, Pieces& out);
  void break_open(Surface& surface, Pieces& out);
  static void close_open(Surface& surface, Pieces& out);
  static void spoke(Surface& surface, std::size_t number, Clock::time_point now);
  Clock::time_point due(std::size_t number) const;
  Clock::time_point patience_ends(const Surface& surface) const;
  void show(std::size_t number, Clock::time_point now, Pieces& out);
  void show_begun(std::size_t number, Clock::time_point now, Pieces& out);
  void draw_state(std::size_t number, Pieces& out);
  void write_state(std::size_t number, Clock::time_point now, Pieces& out);
  void split_overlong(std::size_t number, Clock::time_point now, Pieces& out);
  static void remember(Source& source, std::string_view text);
  static void remember_last(Source& source, std::string_view lines);
  static void finish_tail_line(Source& source);

  bool one_;
  std::array<Surface, 2> surfaces_;
  std::vector<Source> sources_;
};

}  // namespace dlaunch::launcher
