#include "launcher/output_lines.hpp"

#include <algorithm>

namespace dlaunch::launcher {
namespace {

constexpr std::string_view split_mark = " [dlaunch: the line goes on]";

}  // namespace

std::size_t OutputLines::add(Stream to, std::string prefix, bool shown) {
  auto place =
      std::find_if(sources_.begin(), sources_.end(), [](const auto& s) { return s.ended; });
  if (place == sources_.end()) place = sources_.insert(place, Source{});
  *place = Source{};
  place->to = to;
  place->prefix = std::move(prefix);
  place->shown = shown;
  return static_cast<std::size_t>(place - sources_.begin());
}

std::optional<std::size_t>& OutputLines::open_on(Stream to) {
  return open_[one_surface_ || to == Stream::out ? 0 : 1];
}

void OutputLines::feed(std::size_t number, std::string_view bytes, Clock::time_point now,
                       Pieces& out) {
  Source& source = sources_[number];
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    if (end == std::string_view::npos) break;
    emit_text(number, source.partial, bytes.substr(0, end), out);
    source.partial.clear();
    end_line(number, {}, out);
    bytes.remove_prefix(end + 1);
  }
  if (bytes.empty()) return;
  if (source.partial.empty()) source.partial_since = now;
  source.partial.append(bytes);
  split_overlong(number, out);
}

void OutputLines::end(std::size_t number, Pieces& out) {
  Source& source = sources_[number];
  source.ended = true;
  if (!source.partial.empty()) emit_text(number, source.partial, {}, out);
  source.partial = {};
  auto& open = open_on(source.to);
  if (open == number) {
    end_line(number, {}, out);
  } else {
    finish_tail_line(source);
  }
}

void OutputLines::say(Stream to, std::string_view line, Pieces& out) {
  interrupt(to, std::nullopt, out);
  emit(to, line, out);
  emit(to, "\n", out);
}

void OutputLines::flush_due(Clock::time_point now, Pieces& out) {
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    Source& source = sources_[i];
    if (source.partial.empty() || source.partial_since + partial_delay > now) continue;
    emit_text(i, source.partial, {}, out);
    source.partial.clear();
  }
}

std::optional<Clock::time_point> OutputLines::next_deadline() const {
  std::optional<Clock::time_point> first;
  for (const auto& source : sources_) {
    if (source.partial.empty()) continue;
    const auto due = source.partial_since + partial_delay;
    if (!first || due < *first) first = due;
  }
  return first;
}

std::vector<std::string> OutputLines::tail(std::size_t number) const {
  const Source& source = sources_[number];
  std::vector<std::string> lines = source.tail;
  const std::string rest = source.tail_begin + source.partial;
  if (!rest.empty()) lines.push_back(rest.substr(0, tail_line_bytes_max));
  return lines;
}

void OutputLines::emit(Stream to, std::string_view text, Pieces& out) {
  if (text.empty()) return;
  if (out.empty() || out.back().to != to) out.push_back({to, {}});
  out.back().text.append(text);
}

/// Ends the unfinished line that somebody else left standing; it will go on with a prefix of its
/// own.
void OutputLines::interrupt(Stream to, std::optional<std::size_t> by, Pieces& out) {
  auto& open = open_on(to);
  if (!open || open == by) return;
  Source& other = sources_[*open];
  emit(other.to, "\n", out);
  other.line_begun = other.after_return = false;
  open.reset();
}

/// Emits a part of a line; two views, so that the usual whole line is copied once.
void OutputLines::emit_text(std::size_t number, std::string_view first, std::string_view second,
                            Pieces& out) {
  Source& source = sources_[number];
  remember(source, first);
  remember(source, second);
  if (!source.shown) return;
  interrupt(source.to, number, out);
  if (!source.line_begun) {
    emit(source.to, source.prefix, out);
    source.line_begun = true;
  }
  open_on(source.to) = number;
  emit_with_returns(source, first, out);
  emit_with_returns(source, second, out);
}

/// '\r' goes back to the begin of the line, so what follows it needs the prefix again.
void OutputLines::emit_with_returns(Source& source, std::string_view text, Pieces& out) {
  while (!text.empty()) {
    const auto back = text.find('\r');
    const auto plain = text.substr(0, back);
    if (!plain.empty()) {
      if (source.after_return) emit(source.to, source.prefix, out);
      source.after_return = false;
      emit(source.to, plain, out);
    }
    if (back == std::string_view::npos) return;
    emit(source.to, "\r", out);
    source.after_return = true;
    text.remove_prefix(back + 1);
  }
}

void OutputLines::end_line(std::size_t number, std::string_view mark, Pieces& out) {
  Source& source = sources_[number];
  finish_tail_line(source);
  if (!source.shown) return;
  emit(source.to, mark, out);
  emit(source.to, "\n", out);
  source.line_begun = source.after_return = false;
  open_on(source.to).reset();
}

void OutputLines::split_overlong(std::size_t number, Pieces& out) {
  Source& source = sources_[number];
  std::string_view rest = source.partial;
  if (rest.size() <= line_bytes_max) return;
  while (rest.size() > line_bytes_max) {
    emit_text(number, rest.substr(0, line_bytes_max), {}, out);
    end_line(number, split_mark, out);
    rest.remove_prefix(line_bytes_max);
  }
  source.partial = std::string(rest);
}

void OutputLines::remember(Source& source, std::string_view text) {
  if (source.to != Stream::err || text.empty()) return;
  // Of a progress bar only the last state is worth keeping.
  const auto visible_end = text.find_last_not_of('\r');
  if (visible_end == std::string_view::npos) return;
  const auto back = text.find_last_of('\r', visible_end);
  if (back != std::string_view::npos) source.tail_begin.clear();
  text = text.substr(back == std::string_view::npos ? 0 : back + 1);
  const auto room = tail_line_bytes_max - std::min(tail_line_bytes_max, source.tail_begin.size());
  source.tail_begin.append(text.substr(0, room));
}

void OutputLines::finish_tail_line(Source& source) {
  if (source.to != Stream::err) return;
  while (source.tail_begin.ends_with('\r')) source.tail_begin.pop_back();
  if (!source.tail_begin.empty()) source.tail.push_back(std::move(source.tail_begin));
  source.tail_begin.clear();
  if (source.tail.size() > tail_lines_max) source.tail.erase(source.tail.begin());
}

}  // namespace dlaunch::launcher
