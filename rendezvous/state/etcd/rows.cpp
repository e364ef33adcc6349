#include "rendezvous/state/etcd/rows.hpp"

#include "runtime/base/bytes.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text_hash.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <memory>
#include <type_traits>
#include <variant>

namespace dlaunch::rendezvous::etcd {
namespace {

// ---- The names of rows: "m", "j/JOB", "d/JOB", and in a namespace "s/NUMBER/" with a letter ----

constexpr std::size_t hex_size = 16, piece_size = 4;
constexpr std::string_view service_row = "m", job_rows = "j/", drain_rows = "d/", space_rows = "s/";
constexpr std::size_t any_length = std::numeric_limits<std::uint32_t>::max();

std::string hex(std::uint64_t number, std::size_t digits = hex_size) {
  constexpr std::string_view all = "0123456789abcdef";
  std::string text(digits, '0');
  for (std::size_t i = digits; i-- > 0; number >>= 4) text[i] = all[number & 15];
  return text;
}

std::optional<std::uint64_t> from_hex(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string rows_of(change::Space space) {
  return std::string(space_rows) + hex(static_cast<std::uint64_t>(space)) + "/";
}
std::string answers_of(change::Space space, std::uint64_t session) {
  return rows_of(space) + "a" + hex(session) + "/";
}
std::string entry_row(change::Space space, const std::string& queue, std::uint64_t number) {
  return rows_of(space) + "e" + queue + "/" + hex(number);
}

/// The key of one piece of a row; it also tells how many pieces there are.
std::string key_of(std::string_view row, std::size_t piece, std::size_t count) {
  return std::string(row) + hex(piece, piece_size) + hex(count, piece_size);
}

std::uint64_t sum_of(std::string_view row, BytesView payload) {
  return text_hash(as_text(payload), text_hash(row));
}

/// The fields of a row, one after the other.
template <class... Fields>
Bytes payload_of(const Fields&... fields) {
  Bytes bytes;
  ByteWriter out(bytes);
  const auto add = [&](const auto& field) {
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(field)>>) {
      out.integer(static_cast<std::uint64_t>(field));
    } else {
      out.bytes(as_bytes({reinterpret_cast<const char*>(field.data()), field.size()}));
    }
  };
  (add(fields), ...);
  return bytes;
}

std::uint64_t number(ByteReader& in) { return in.integer<std::uint64_t>(); }
std::string text(ByteReader& in) { return std::string(in.text(any_length)); }
Bytes bytes(ByteReader& in) {
  const BytesView raw = in.bytes(any_length);
  return {raw.begin(), raw.end()};
}

}  // namespace

// ---- Writing ----

void Rows::put(const std::string& row, Bytes payload, Batch& batch) {
  ByteWriter(payload).integer(sum_of(row, payload));
  const std::string_view whole = as_text(payload);
  const std::size_t count = (whole.size() + piece_bytes - 1) / piece_bytes;
  if (count != pieces_of(row)) {
    erase(row, batch);
    if (count > 1) pieces_[row] = count;
  }
  for (std::size_t i = 0; i < count; ++i) {
    batch.put(key_of(row, i, count), std::string(whole.substr(i * piece_bytes, piece_bytes)));
  }
}

std::size_t Rows::pieces_of(std::string_view row) const {
  const auto found = pieces_.find(row);
  return found == pieces_.end() ? 1 : found->second;
}

void Rows::erase(const std::string& row, Batch& batch) {
  const std::size_t count = pieces_of(row);
  for (std::size_t i = 0; i < count; ++i) batch.erase(key_of(row, i, count));
  if (count > 1) pieces_.erase(row);
}

void Rows::erase_all(const std::string& rows, Batch& batch) {
  batch.erase_all(rows);
  const auto first = pieces_.lower_bound(rows);
  auto last = first;
  while (last != pieces_.end() && last->first.starts_with(rows)) ++last;
  pieces_.erase(first, last);
}

void Rows::begin(std::uint64_t memory, Batch& batch) {
  memory_ = memory;
  put_service(batch);
}

void Rows::put_service(Batch& batch) {
  put(std::string(service_row), payload_of(memory_.value_or(0), incarnation_, epoch_), batch);
}

void Rows::put_job(const JobRecord& record, Batch& batch) {
  put(std::string(job_rows) + record.job,
      payload_of(record.incarnation, record.epoch, record.exit_code.has_value(),
                 record.exit_code.value_or(0)),
      batch);
}

void Rows::end_drain(const std::string& job, Batch& batch) {
  if (drains_.erase(job) != 0) erase(std::string(drain_rows) + job, batch);
}

struct Rows::Apply {
  Rows& rows;
  Batch& batch;

  template <class Act>
  void change_job(const std::string& job, Act act) const {
    JobRecord& record = rows.jobs_.try_emplace(job, JobRecord{job, 0, 0, {}}).first->second;
    act(record);
    rows.put_job(record, batch);
  }
  void operator()(const change::JobOpened& c) const {
    change_job(c.job, [&](JobRecord& record) {
      record.incarnation = c.incarnation;
      record.exit_code.reset();
    });
    rows.end_drain(c.job, batch);
  }
  void operator()(const change::EpochClosed& c) const {
    change_job(c.job, [&](JobRecord& record) { record.epoch = c.epoch; });
  }
  void operator()(const change::JobFinished& c) const {
    change_job(c.job, [&](JobRecord& record) { record.exit_code = c.exit_code; });
    rows.end_drain(c.job, batch);
  }
  /// The job's numbers stay: they are never given again.
  void operator()(const change::JobForgotten& c) const {
    const auto found = rows.jobs_.find(c.job);
    if (found == rows.jobs_.end()) return;
    rows.incarnation_ = std::max(rows.incarnation_, found->second.incarnation);
    rows.epoch_ = std::max(rows.epoch_, found->second.epoch);
    rows.jobs_.erase(found);
    rows.put_service(batch);
    rows.erase(std::string(job_rows) + c.job, batch);
    rows.end_drain(c.job, batch);
  }
  void operator()(const change::Drained& c) const {
    if (!c.why) return rows.end_drain(c.job, batch);
    rows.drains_[c.job] = *c.why;
    rows.put(std::string(drain_rows) + c.job, payload_of(*c.why), batch);
  }
  void operator()(const change::SpaceOpened& c) const {
    rows.put(rows_of(c.space), payload_of(c.job, c.incarnation, c.epoch), batch);
  }
  void operator()(const change::SpaceDropped& c) const {
    rows.erase_all(rows_of(c.space), batch);
    const auto first = rows.queues_.lower_bound({c.space, ""});
    rows.queues_.erase(first, rows.queues_.lower_bound({c.space + 1, ""}));
  }
  void operator()(const change::Stored& c) const {
    rows.put(rows_of(c.space) + "k" + c.key, payload_of(c.value, c.owner, c.lease.count()), batch);
  }
  void operator()(const change::Erased& c) const {
    rows.erase(rows_of(c.space) + "k" + c.key, batch);
  }
  void operator()(const change::Pushed& c) const {
    Queue& queue = rows.queues_[{c.space, c.queue}];
    rows.put(entry_row(c.space, c.queue, queue.next++), payload_of(c.value), batch);
  }
  void operator()(const change::Popped& c) const {
    const auto found = rows.queues_.find({c.space, c.queue});
    if (found == rows.queues_.end()) return;
    Queue& queue = found->second;
    rows.erase(entry_row(c.space, c.queue, queue.first++), batch);
    if (queue.first == queue.next) rows.queues_.erase(found);
  }
  void operator()(const change::Completed& c) const {
    rows.put(rows_of(c.space) + "r" + (c.gathers ? "1" : "0") + c.name,
             payload_of(c.round, c.block != nullptr, c.block ? *c.block : Bytes(), c.too_big),
             batch);
  }
  /// A session's answers rotate through as many rows as it may have unanswered changes.
  void operator()(const change::Answered& c) const {
    rows.put(answers_of(c.space, c.session) + hex(c.number % wire::unanswered_changes_max),
             payload_of(c.number, c.request, static_cast<std::uint64_t>(c.type), c.payload), batch);
  }
  void operator()(const change::Forgot& c) const {
    rows.erase_all(answers_of(c.space, c.session), batch);
  }
};

void Rows::apply(const Change& change, Batch& batch) { std::visit(Apply{*this, batch}, change); }

// ---- Reading ----

void Rows::require(bool good, std::string_view row) const {
  if (good) return;
  throw Error(Errc::refused, "the state in " + place_ + " is damaged (row " + name_in_quotes(row) +
                                 "); restore etcd from a snapshot, or name another place behind "
                                 "the port to begin without what it holds");
}

/// Pieces of other rows may come between those of one.
void Rows::found(std::string_view key, std::string_view value) {
  require(key.size() > 2 * piece_size, key);
  const std::string_view row = key.substr(0, key.size() - 2 * piece_size);
  const auto piece = from_hex(key.substr(row.size(), piece_size));
  const auto count = from_hex(key.substr(row.size() + piece_size));
  require(piece && count && *piece < *count, key);
  if (*count == 1) return take(row, as_bytes(value));
  Whole& whole = wholes_[std::string(row)];
  require(whole.pieces == *piece, key);
  const BytesView raw = as_bytes(value);
  whole.value.insert(whole.value.end(), raw.begin(), raw.end());
  if (++whole.pieces < *count) return;
  pieces_[std::string(row)] = whole.pieces;
  take(row, whole.value);
  wholes_.erase(std::string(row));
}

void Rows::take(std::string_view row, BytesView value) {
  require(value.size() >= sizeof(std::uint64_t), row);
  const BytesView payload = value.first(value.size() - sizeof(std::uint64_t));
  ByteReader sum(value.subspan(payload.size()));
  require(number(sum) == sum_of(row, payload), row);
  take_row(row, payload);
}

void Rows::take_row(std::string_view row, BytesView payload) {
  ByteReader in(payload);
  if (row == service_row) {
    memory_ = number(in);
    incarnation_ = number(in);
    epoch_ = number(in);
    return require(in.complete(), row);
  }
  if (row.starts_with(job_rows)) {
    JobRecord record{std::string(row.substr(job_rows.size())), number(in), number(in), {}};
    const bool ended = number(in) != 0;
    const auto code = static_cast<int>(number(in));
    if (ended) record.exit_code = code;
    require(in.complete(), row);
    jobs_[record.job] = std::move(record);
    return;
  }
  if (row.starts_with(drain_rows)) {
    drains_[std::string(row.substr(drain_rows.size()))] = text(in);
    return require(in.complete(), row);
  }
  require(row.starts_with(space_rows), row);
  take_in_space(row, payload);
}

void Rows::take_in_space(std::string_view row, BytesView payload) {
  const std::size_t start = space_rows.size() + hex_size + 1;
  require(row.size() >= start, row);
  const auto space = from_hex(row.substr(space_rows.size(), hex_size));
  require(space.has_value(), row);
  const auto of = static_cast<SpaceNumber>(*space);
  require(of >= 0 && of < std::numeric_limits<SpaceNumber>::max(), row);
  std::string_view rest = row.substr(start);
  ByteReader in(payload);
  if (rest.empty()) {
    SpaceName name{text(in), number(in), number(in)};
    contents_.next_space = std::max(contents_.next_space, of + 1);
    StateContents::Space& made = contents_.spaces[std::move(name)];
    made.number = of;
    spaces_[of] = &made;
    return require(in.complete(), row);
  }
  const char table = rest.front();
  rest.remove_prefix(1);
  const auto found = spaces_.find(of);
  require(found != spaces_.end(), row);
  StateContents::Space& into = *found->second;
  if (table == 'k') {
    store::SpaceContents::Key key{std::string(rest), bytes(in), number(in), {}};
    key.lease = std::chrono::milliseconds(static_cast<std::int64_t>(number(in)));
    into.contents.keys.push_back(std::move(key));
  } else if (table == 'e' && rest.size() > hex_size) {
    const auto place = from_hex(rest.substr(rest.size() - hex_size));
    require(place.has_value(), row);
    std::string name(rest.substr(0, rest.size() - hex_size - 1));
    Queue& queue = queues_.try_emplace({of, name}, Queue{*place, *place}).first->second;
    require(queue.next == *place, row);
    ++queue.next;
    into.contents.entries.emplace_back(std::move(name), bytes(in));
  } else if (table == 'r' && !rest.empty()) {
    store::SpaceContents::Round round{
        rest.front() == '1', std::string(rest.substr(1)), number(in), nullptr, {}};
    const bool has_block = number(in) != 0;
    Bytes block = bytes(in);
    if (has_block) round.block = std::make_shared<const Bytes>(std::move(block));
    round.too_big = text(in);
    into.contents.rounds.push_back(std::move(round));
  } else if (table == 'a' && rest.size() > hex_size) {
    const auto session = from_hex(rest.substr(0, hex_size));
    require(session.has_value(), row);
    const std::uint64_t count = number(in), request = number(in);
    const auto type = static_cast<wire::Type>(number(in));
    answers_[{of, *session}][count] = {*session, request, type, bytes(in)};
  } else {
    require(false, row);
  }
  require(in.complete(), row);
}

StateContents Rows::contents() {
  if (!wholes_.empty()) require(false, wholes_.begin()->first);
  for (auto& [whose, answers] : answers_) {
    StateContents::Space& space = *spaces_.at(whose.first);
    for (auto& [count, answer] : answers) {
      space.answers[whose.second] = count + 1;
      space.contents.answers.push_back(std::move(answer));
    }
  }
  answers_.clear();
  spaces_.clear();
  contents_.memory = memory_.value_or(0);
  if (incarnation_ > 0 || drains_.contains("")) {
    contents_.jobs.push_back({"", incarnation_, epoch_, {}});
  }
  for (const auto& [name, record] : jobs_) contents_.jobs.push_back(record);
  for (auto& record : contents_.jobs) {
    if (const auto found = drains_.find(record.job); found != drains_.end()) {
      record.drained = found->second;
    }
  }
  for (const auto& [job, why] : drains_) {
    require(job.empty() || jobs_.contains(job), std::string(drain_rows) + job);
  }
  return std::exchange(contents_, {});
}

}  // namespace dlaunch::rendezvous::etcd
