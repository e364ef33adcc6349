#pragma once

#include <dlaunch/error.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::launcher {

/// Where a line goes.
enum class Stream { out, err };

/// Text for one of the launcher's own streams, in order of emission.
struct Piece {
  Stream to = Stream::out;
  std::string text;
};
using Pieces = std::vector<Piece>;

/// Merges what many workers write into whole lines, each with its writer's prefix: pure, no
/// descriptor and no clock, not thread-safe. A line is emitted when its end arrives, so lines come
/// out in the order in which they were completed. What has no end after `partial_delay` (a
/// prompt, a progress bar) is emitted as it is; another writer then begins a new line.
class OutputLines {
 public:
  static constexpr std::size_t line_bytes_max = 64u << 10;  ///< A longer line is split and marked.
  static constexpr std::size_t tail_lines_max = 20;
  static constexpr std::size_t tail_line_bytes_max = 1u << 10;
  static constexpr auto partial_delay = std::chrono::milliseconds(100);

  /// With `one_surface` both streams end in the same terminal or file.
  explicit OutputLines(bool one_surface) : one_surface_(one_surface) {}

  /// Returns the new source's number, which may be that of an ended one. With `shown` false
  /// nothing is emitted; the tail is kept all the same.
  std::size_t add(Stream to, std::string prefix, bool shown = true);
  /// Bytes that a source wrote.
  void feed(std::size_t source, std::string_view bytes, Clock::time_point now, Pieces& out);
  /// The source has ended; an unfinished line gets an end.
  void end(std::size_t source, Pieces& out);
  /// A line of the launcher's own.
  void say(Stream to, std::string_view line, Pieces& out);
  /// Emits what has waited long enough.
  void flush_due(Clock::time_point now, Pieces& out);
  /// When flush_due is next needed.
  std::optional<Clock::time_point> next_deadline() const;

  /// The last lines of a stderr source, without prefix and ends of line; also after its end, until
  /// the next `add`.
  std::vector<std::string> tail(std::size_t source) const;

 private:
  struct Source {
    Stream to = Stream::out;
    std::string prefix;
    bool shown = true;
    bool ended = false;
    std::string partial;  ///< Waits for the end of its line.
    Clock::time_point partial_since{};
    bool line_begun = false;    ///< A part of the current line was emitted already.
    bool after_return = false;  ///< The last thing emitted was '\r'.
    std::string tail_begin;     ///< What was emitted of the current line, for the tail.
    std::vector<std::string> tail;
  };

  static void emit(Stream to, std::string_view text, Pieces& out);
  void interrupt(Stream to, std::optional<std::size_t> by, Pieces& out);
  void emit_text(std::size_t number, std::string_view first, std::string_view second, Pieces& out);
  static void emit_with_returns(Source& source, std::string_view text, Pieces& out);
  void end_line(std::size_t number, std::string_view mark, Pieces& out);
  void split_overlong(std::size_t number, Pieces& out);
  static void remember(Source& source, std::string_view text);
  static void finish_tail_line(Source& source);
  std::optional<std::size_t>& open_on(Stream to);

  bool one_surface_;
  std::vector<Source> sources_;
  /// The source whose unfinished line stands on each surface.
  std::array<std::optional<std::size_t>, 2> open_{};
};

}  // namespace dlaunch::launcher
