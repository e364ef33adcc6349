#include "launcher/output/output_lines.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::launcher {
namespace {

constexpr std::string_view split_mark = " [dlaunch: the line goes on]";
constexpr std::string_view wipe_row = "\r\x1b[K";

std::size_t emit(Stream to, std::string_view text, Pieces& out) {
  if (text.empty()) return 0;
  if (out.empty() || out.back().to != to) out.push_back({to, {}});
  out.back().text.append(text);
  return text.size();
}

/// Appends room for so many bytes, and returns its place.
char* extend(Stream to, std::size_t bytes, Pieces& out) {
  if (out.empty() || out.back().to != to) out.push_back({to, {}});
  std::string& text = out.back().text;
  const std::size_t begin = text.size();
  text.resize(begin + bytes);
  return text.data() + begin;
}

/// Writes whole lines, each behind the prefix. A program that floods its output waits for this, so
/// the lines' ends are found first, and each byte is copied once, into room of the right size.
void emit_lines(Stream to, std::string_view prefix, std::string_view lines, Pieces& out) {
  std::array<std::size_t, 512> sizes;
  while (!lines.empty()) {
    std::size_t count = 0, bytes = 0;
    while (bytes < lines.size() && count < sizes.size()) {
      const std::size_t end = lines.find('\n', bytes) + 1;
      sizes[count++] = end - bytes;
      bytes = end;
    }
    char* at = extend(to, bytes + count * prefix.size(), out);
    const char* line = lines.data();
    for (std::size_t i = 0; i < count; line += sizes[i++]) {
      at = std::copy(prefix.begin(), prefix.end(), at);
      at = std::copy_n(line, sizes[i], at);
    }
    lines.remove_prefix(bytes);
  }
}

/// The part of a line that '\r' has left; returns at its end are kept, since '\n' may follow.
std::string_view last_state(std::string_view text) {
  const auto visible_end = text.find_last_not_of('\r');
  if (visible_end == std::string_view::npos) return text;
  const auto back = text.find_last_of('\r', visible_end);
  return back == std::string_view::npos ? text : text.substr(back + 1);
}

std::string_view without_returns(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\r') + 1);
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \r") == std::string_view::npos;
}

/// The beginning of a text that fits into the columns. Escape sequences such as colours are kept;
/// each character counts as one column.
std::string cut(std::string_view text, std::size_t columns) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    const bool control = text[i] == '\x1b' && end < text.size() && text[end] == '[';
    if (control) {
      end = std::min(text.find_first_of("ABCDEFGHJKSTfhlmnsu", end + 1), text.size() - 1) + 1;
    } else {
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
    }
    if (control || columns > 0) out.append(text.substr(i, end - i));
    if (!control && columns > 0) --columns;
    i = end;
  }
  return out;
}

}  // namespace

std::string coloured_prefix(std::string_view prefix, int rank) {
  // Colours that are legible on light and on dark ground; no red, which means errors.
  constexpr std::array<std::string_view, 6> colours = {"36", "33", "35", "32", "34", "95"};
  const auto end = prefix.find_last_not_of(' ') + 1;
  if (end == 0) return std::string(prefix);
  const auto colour = colours[static_cast<std::size_t>(rank) % colours.size()];
  std::string text = "\x1b[";
  text.append(colour).append("m").append(prefix.substr(0, end)).append("\x1b[0m");
  return text.append(prefix.substr(end));
}

OutputLines::OutputLines(Surfaces surfaces) : one_(surfaces.one) {
  surfaces_[0].terminal = surfaces.out_is_terminal;
  surfaces_[1].terminal = surfaces.err_is_terminal;
}

std::size_t OutputLines::add(Writer writer) {
  auto place =
      std::find_if(sources_.begin(), sources_.end(), [](const auto& s) { return s.ended; });
  if (place == sources_.end()) place = sources_.insert(place, Source{});
  *place = Source{};
  place->writer = std::move(writer);
  return static_cast<std::size_t>(place - sources_.begin());
}

// ---- What the workers write ----

void OutputLines::feed(std::size_t number, std::string_view bytes, Clock::time_point now,
                       Pieces& out) {
  Source& source = sources_[number];
  source.moved = now;
  if (const auto last = bytes.rfind('\n'); last != std::string_view::npos) {
    take_lines(number, bytes.substr(0, last + 1), now, out);
    bytes.remove_prefix(last + 1);
  }
  if (bytes.empty()) return;
  begin_line(source, now);
  if (!source.fresh) source.partial_since = now;
  source.fresh = source.writer.shown;
  const bool returns = source.partial.ends_with('\r') || bytes.find('\r') != std::string_view::npos;
  source.partial.append(bytes);
  if (returns) keep_last_state(source);
  split_overlong(number, now, out);
}

bool OutputLines::is_progress(const Source& source) {
  return source.returned || source.partial.ends_with('\r');
}

void OutputLines::keep_last_state(Source& source) {
  const auto state = last_state(source.partial);
  if (state.size() == source.partial.size()) return;
  source.partial.erase(0, source.partial.size() - state.size());
  source.returned = true;
  source.tail_begin.clear();
}

/// Begins a line of the source, of which nothing has been seen yet.
void OutputLines::begin_line(Source& source, Clock::time_point now) {
  const auto& open = surface_of(source.writer.to).open;
  const bool stands = open && &sources_[*open] == &source;
  if (source.partial.empty() && !source.returned && !stands) source.begun = now;
}

/// Takes lines, all of them whole.
void OutputLines::take_lines(std::size_t number, std::string_view lines, Clock::time_point now,
                             Pieces& out) {
  const bool returns = lines.find('\r') != std::string_view::npos;
  while (!lines.empty()) {
    if (!returns && is_at_rest(sources_[number])) return take_plain(number, lines, now, out);
    const auto end = lines.find('\n');
    take_line(number, lines.substr(0, end), now, out);
    lines.remove_prefix(end + 1);
  }
}

/// Whether nothing is unfinished, neither of the source's nor where it writes, so that its next
/// line can be taken alone.
bool OutputLines::is_at_rest(const Source& source) const {
  return source.partial.empty() && source.tail_begin.empty() && !source.returned &&
         !source.state_interval && !surface_of(source.writer.to).open;
}

/// A short way for ordinary lines, with the same result as take_line for each.
void OutputLines::take_plain(std::size_t number, std::string_view lines, Clock::time_point now,
                             Pieces& out) {
  Source& source = sources_[number];
  remember_last(source, lines);
  source.fresh = false;
  if (!source.writer.shown) return;
  spoke(surface_of(source.writer.to), number, now);
  emit_lines(source.writer.to, source.writer.prefix, lines, out);
}

void OutputLines::take_line(std::size_t number, std::string_view rest, Clock::time_point now,
                            Pieces& out) {
  Source& source = sources_[number];
  // The last state may already have been written as a line.
  const bool done = source.state_interval && !source.fresh && rest.empty();
  std::string_view first = source.partial;
  if (source.partial.ends_with('\r') || rest.find('\r') != std::string_view::npos) {
    source.partial.append(std::exchange(rest, {}));
    keep_last_state(source);
    first = source.partial;
  }
  remember(source, first);
  remember(source, rest);
  finish_tail_line(source);
  if (source.writer.shown && !done) emit_line(number, first, rest, {}, now, out);
  source.partial.clear();
  source.fresh = source.returned = false;
  source.state_interval.reset();
}

void OutputLines::end(std::size_t number, Clock::time_point now, Pieces& out) {
  Source& source = sources_[number];
  Surface& surface = surface_of(source.writer.to);
  const bool stands = surface.open == number;
  const bool wiped_out = is_progress(source) && is_blank(source.partial);
  if (stands && surface.progress && wiped_out) {
    emit(source.writer.to, wipe_row, out);
    close_open(surface, out);
  } else if (stands || (!source.partial.empty() && !wiped_out)) {
    source.partial.resize(without_returns(source.partial).size());
    take_line(number, {}, now, out);
  }
  finish_tail_line(source);
  source.partial = {};
  source.fresh = false;
  source.ended = true;
}

void OutputLines::say(Stream to, std::string_view line, Pieces& out) {
  Surface& surface = surface_of(to);
  if (surface.open) break_open(surface, out);
  emit(to, line, out);
  emit(to, "\n", out);
}

void OutputLines::split_overlong(std::size_t number, Clock::time_point now, Pieces& out) {
  Source& source = sources_[number];
  std::string_view rest = source.partial;
  if (rest.size() <= line_bytes_max) return;
  while (rest.size() > line_bytes_max) {
    const auto part = rest.substr(0, line_bytes_max);
    remember(source, part);
    finish_tail_line(source);
    if (source.writer.shown) emit_line(number, part, {}, split_mark, now, out);
    rest.remove_prefix(line_bytes_max);
  }
  source.partial = std::string(rest);
  source.begun = source.partial_since = now;
}

/// Emits the end of a line. It comes in two views, so that the usual whole line is copied once.
void OutputLines::emit_line(std::size_t number, std::string_view first, std::string_view second,
                            std::string_view mark, Clock::time_point now, Pieces& out) {
  const Source& source = sources_[number];
  const Stream to = source.writer.to;
  Surface& surface = surface_of(to);
  spoke(surface, number, now);
  const bool stands = surface.open == number;
  Pieces& room = stands ? out : make_room(surface, now, out);
  // The part of the line that is shown is an outdated state, or the beginning of the text that
  // follows.
  const bool replaces = stands && (surface.progress || source.returned);
  std::size_t size = 0;
  if (replaces) size += emit(to, surface.terminal ? wipe_row : "\n", room);
  if (!stands || replaces) size += emit(to, source.writer.prefix, room);
  for (const auto part : {first, second, mark, std::string_view("\n")}) {
    size += emit(to, part, room);
  }
  if (stands) return close_open(surface, out);
  if (&room == &surface.held) surface.held_bytes += size;
}

// ---- One surface, many writers ----

void OutputLines::spoke(Surface& surface, std::size_t number, Clock::time_point now) {
  if (surface.speaker != number) surface.others_spoke = surface.spoke;
  surface.speaker = number;
  surface.spoke = now;
}

/// Makes room for a source other than the one whose line is open.
Pieces& OutputLines::make_room(Surface& surface, Clock::time_point now, Pieces& out) {
  if (!surface.open) return out;
  const bool wait =
      !surface.terminal && now < patience_ends(surface) && surface.held_bytes < held_bytes_max;
  if (wait) return surface.held;
  break_open(surface, out);
  return out;
}

Clock::time_point OutputLines::patience_ends(const Surface& surface) const {
  return sources_[*surface.open].begun + line_patience;
}

/// Another source is to write: progress is wiped and drawn again below; a begun line stays, and its
/// rest gets a prefix of its own.
void OutputLines::break_open(Surface& surface, Pieces& out) {
  Source& other = sources_[*surface.open];
  emit(other.writer.to, surface.progress ? wipe_row : "\n", out);
  if (surface.progress) {
    other.fresh = true;
    other.partial_since = other.moved - partial_delay;  // At once.
  } else {
    other.begun = other.partial_since;
  }
  close_open(surface, out);
}

void OutputLines::close_open(Surface& surface, Pieces& out) {
  surface.open.reset();
  surface.progress = false;
  surface.held_bytes = 0;
  for (const auto& piece : std::exchange(surface.held, {})) emit(piece.to, piece.text, out);
}

// ---- What has no end yet ----

void OutputLines::flush_due(Clock::time_point now, Pieces& out) {
  for (auto& surface : surfaces_) {
    if (!surface.held.empty() && patience_ends(surface) <= now) break_open(surface, out);
  }
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].fresh && due(i) <= now) show(i, now, out);
  }
}

std::optional<Clock::time_point> OutputLines::next_deadline() const {
  std::optional<Clock::time_point> first;
  const auto take = [&](Clock::time_point at) { first = first ? std::min(*first, at) : at; };
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].fresh) take(due(i));
  }
  for (const auto& surface : surfaces_) {
    if (!surface.held.empty()) take(patience_ends(surface));
  }
  return first;
}

/// The time at which the source's fresh text is to be shown.
Clock::time_point OutputLines::due(std::size_t number) const {
  const Source& source = sources_[number];
  const Surface& surface = surface_of(source.writer.to);
  const bool stands = surface.open == number;
  const bool progress = is_progress(source);
  const auto at = source.partial_since + partial_delay;
  if (surface.terminal) {
    // The first writer's progress is shown as long as it moves.
    const bool after_another = progress && surface.progress && !stands && *surface.open < number;
    return after_another ? std::max(at, sources_[*surface.open].moved + progress_stale_after) : at;
  }
  if (progress) return source.begun + source.state_interval.value_or(state_interval_first);
  if (stands) return at;
  const auto others = surface.speaker == number ? surface.others_spoke : surface.spoke;
  const auto quiet = std::max(at, others + quiet_after);
  const auto latest = std::min(quiet, source.begun + line_patience);
  return surface.open ? std::max(latest, patience_ends(surface)) : latest;
}

void OutputLines::show(std::size_t number, Clock::time_point now, Pieces& out) {
  Source& source = sources_[number];
  source.fresh = false;
  if (!is_progress(source)) return show_begun(number, now, out);
  if (surface_of(source.writer.to).terminal) return draw_state(number, out);
  write_state(number, now, out);
}

void OutputLines::show_begun(std::size_t number, Clock::time_point now, Pieces& out) {
  Source& source = sources_[number];
  Surface& surface = surface_of(source.writer.to);
  if (surface.open != number) {
    if (surface.open) break_open(surface, out);
    emit(source.writer.to, source.writer.prefix, out);
    surface.open = number;
  }
  emit(source.writer.to, source.partial, out);
  spoke(surface, number, now);
  remember(source, source.partial);
  source.partial.clear();
}

void OutputLines::draw_state(std::size_t number, Pieces& out) {
  const Source& source = sources_[number];
  Surface& surface = surface_of(source.writer.to);
  const Stream to = source.writer.to;
  const auto state = without_returns(source.partial);
  if (surface.open == number) {
    emit(to, wipe_row, out);
  } else {
    if (is_blank(state)) return;
    const auto other = surface.progress ? surface.open : std::nullopt;
    if (surface.open) break_open(surface, out);
    if (other) sources_[*other].fresh = false;  // It is shown again when it moves.
  }
  surface.open = number;
  surface.progress = true;
  if (is_blank(state)) return;
  const std::string row = source.writer.prefix + std::string(state);
  emit(to, surface.columns == 0 ? row : cut(row, surface.columns - 1), out);
}

void OutputLines::write_state(std::size_t number, Clock::time_point now, Pieces& out) {
  Source& source = sources_[number];
  const auto state = without_returns(source.partial);
  if (!is_blank(state)) emit_line(number, state, {}, {}, now, out);
  source.returned = true;
  source.state_interval = std::min<Clock::duration>(
      source.state_interval.value_or(state_interval_first) * 2, state_interval_last);
  source.begun = now;
}

// ---- The tail ----

std::vector<std::string> OutputLines::tail(std::size_t number) const {
  const Source& source = sources_[number];
  std::vector<std::string> lines = source.tail;
  const std::string rest = source.tail_begin + std::string(without_returns(source.partial));
  if (!rest.empty()) lines.push_back(rest.substr(0, tail_line_bytes_max));
  return lines;
}

void OutputLines::remember(Source& source, std::string_view text) {
  if (!source.writer.keeps_tail) return;
  const auto room = tail_line_bytes_max - std::min(tail_line_bytes_max, source.tail_begin.size());
  source.tail_begin.append(text.substr(0, room));
}

/// Takes whole lines without '\r': only the last ones can be in the tail.
void OutputLines::remember_last(Source& source, std::string_view lines) {
  if (!source.writer.keeps_tail) return;
  std::size_t first = lines.size();
  for (std::size_t found = 0; first > 0 && found < tail_lines_max;) {
    const std::size_t end = first - 1;
    const auto before = end == 0 ? std::string_view::npos : lines.rfind('\n', end - 1);
    first = before == std::string_view::npos ? 0 : before + 1;
    if (first < end) ++found;  // The tail has no empty lines.
  }
  for (lines.remove_prefix(first); !lines.empty();) {
    const auto end = lines.find('\n');
    remember(source, lines.substr(0, end));
    finish_tail_line(source);
    lines.remove_prefix(end + 1);
  }
}

void OutputLines::finish_tail_line(Source& source) {
  if (!source.writer.keeps_tail) return;
  while (source.tail_begin.ends_with('\r')) source.tail_begin.pop_back();
  if (!source.tail_begin.empty()) source.tail.push_back(std::move(source.tail_begin));
  source.tail_begin.clear();
  if (source.tail.size() > tail_lines_max) source.tail.erase(source.tail.begin());
}

}  // namespace dlaunch::launcher
