#include "rendezvous/state/state_file_state.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace dlaunch::rendezvous {
namespace {

/// The number of pages in the log at which they are moved to the file. No change is written
/// meanwhile: 1,000 pages take 14 to 29 ms, and 250 take 6 to 9, for which a job that writes
/// without end gets 0.85 times as much written.
constexpr int log_pages_max = 250;

}  // namespace

StateFile::Wrote StateFile::write(std::span<const Change> changes) {
  State& s = *state_;
  bool commits = false;
  try {
    s.begin.run();
    for (const Change& each : changes) {
      std::visit([&](const auto& change) { s.apply(change); }, each);
    }
    commits = true;
    s.commit.run();
    s.require_in_place();
    return Wrote::all;
  } catch (const sqlite::Failure& failure) {
    // For want of memory SQLite may not tell that the commit's sync has failed, too.
    const bool no_memory = failure.no_memory() && !commits;
    if (!failure.no_space() && !no_memory) throw lost_state(s.path, failure);
    s.roll_back();
    return no_memory ? Wrote::no_memory : Wrote::no_space;
  } catch (const std::bad_alloc&) {
    if (commits) throw;
    s.roll_back();
    return Wrote::no_memory;
  }
}

void StateFile::State::roll_back() {
  if (!file.in_transaction()) return;  // SQLite has done so.
  try {
    rollback.run();
  } catch (const sqlite::Failure& failure) {
    throw lost_state(path, failure);
  }
}

/// On a full disk, or without memory, everything stays in the log, where it is as safe.
void StateFile::tidy() {
  if (state_->file.log_pages() < log_pages_max) return;
  try {
    state_->file.checkpoint();
  } catch (const sqlite::Failure& failure) {
    if (!failure.no_space() && !failure.no_memory()) throw lost_state(state_->path, failure);
  }
}

void StateFile::State::write_service() {
  set_service.run(memory, incarnation, epoch, sum_of("service", memory, incarnation, epoch));
}

template <class Act>
void StateFile::State::change_job(const std::string& job, Act act) {
  JobRecord record{job, 0, 0, std::nullopt};
  if (find_job.run(std::string_view(job))) {
    record.incarnation = find_job.number(0);
    record.epoch = find_job.number(1);
    if (!find_job.is_null(2)) record.exit_code = static_cast<int>(find_job.integer(2));
    find_job.done();
  }
  act(record);
  std::optional<std::int64_t> exit_code;
  if (record.exit_code) exit_code = *record.exit_code;
  set_job.run(std::string_view(job), record.incarnation, record.epoch, exit_code,
              sum_of("jobs", job, record.incarnation, record.epoch, exit_code.has_value(),
                     exit_code.value_or(0)));
}

void StateFile::State::apply(const change::JobOpened& c) {
  change_job(c.job, [&](JobRecord& record) {
    record.incarnation = c.incarnation;
    record.exit_code.reset();
  });
  erase_drain.run(std::string_view(c.job));
}

void StateFile::State::apply(const change::EpochClosed& c) {
  change_job(c.job, [&](JobRecord& record) { record.epoch = c.epoch; });
}

void StateFile::State::apply(const change::JobFinished& c) {
  change_job(c.job, [&](JobRecord& record) { record.exit_code = c.exit_code; });
  erase_drain.run(std::string_view(c.job));
}

/// The job's numbers stay: they are never given again.
void StateFile::State::apply(const change::JobForgotten& c) {
  if (!find_job.run(std::string_view(c.job))) return;
  const std::uint64_t its_incarnation = find_job.number(0), its_epoch = find_job.number(1);
  find_job.done();
  // Set before the commit: if that fails, the same change is made again, with the same outcome.
  incarnation = std::max(incarnation, its_incarnation);
  epoch = std::max(epoch, its_epoch);
  write_service();
  erase_job.run(std::string_view(c.job));
  erase_drain.run(std::string_view(c.job));
}

void StateFile::State::apply(const change::Drained& c) {
  const std::string_view job = c.job;
  if (!c.why) return void(erase_drain.run(job));
  set_drain.run(job, std::string_view(*c.why), sum_of("drains", c.job, *c.why));
}

void StateFile::State::apply(const change::SpaceOpened& c) {
  add_space.run(c.space, std::string_view(c.job), c.incarnation, c.epoch,
                sum_of("spaces", c.space, c.job, c.incarnation, c.epoch));
}

void StateFile::State::apply(const change::SpaceDropped& c) {
  for (auto& statement : drop_space) statement.run(c.space);
}

void StateFile::State::apply(const change::Stored& c) {
  const std::int64_t lease = c.lease.count();
  set_key.run(c.space, std::string_view(c.key), BytesView(c.value), c.owner, lease,
              sum_of("keys", c.space, c.key, c.value, c.owner, lease));
}

void StateFile::State::apply(const change::Erased& c) {
  erase_key.run(c.space, std::string_view(c.key));
}

void StateFile::State::apply(const change::Pushed& c) {
  last_entry.run(c.space, std::string_view(c.queue));
  const std::int64_t number = last_entry.integer(0) + 1;
  last_entry.done();
  add_entry.run(c.space, std::string_view(c.queue), number, BytesView(c.value),
                sum_of("entries", c.space, c.queue, number, c.value));
}

void StateFile::State::apply(const change::Popped& c) {
  first_entry.run(c.space, std::string_view(c.queue));
  const std::int64_t number = first_entry.integer(0);
  first_entry.done();
  erase_entry.run(c.space, std::string_view(c.queue), number);
}

void StateFile::State::apply(const change::Completed& c) {
  std::optional<BytesView> block;
  if (c.block) block = *c.block;
  const std::int64_t gathers = c.gathers ? 1 : 0;
  set_round.run(c.space, gathers, std::string_view(c.name), c.round, block,
                std::string_view(c.too_big),
                sum_of("rounds", c.space, gathers, c.name, c.round, block.has_value(),
                       block.value_or(BytesView()), c.too_big));
}

/// A session's answers rotate through as many rows as it may have unanswered changes.
void StateFile::State::apply(const change::Answered& c) {
  const std::uint64_t slot = c.number % wire::unanswered_changes_max;
  const auto type = static_cast<std::int64_t>(c.type);
  set_answer.run(c.space, c.session, slot, c.number, c.request, type, BytesView(c.payload),
                 sum_of("answers", c.space, c.session, slot, c.number, c.request, type, c.payload));
}

void StateFile::State::apply(const change::Forgot& c) { forget_answers.run(c.space, c.session); }

}  // namespace dlaunch::rendezvous
