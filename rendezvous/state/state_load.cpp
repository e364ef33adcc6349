#include "rendezvous/state/state_file_state.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace dlaunch::rendezvous {

StateContents StateFile::load() {
  State& s = *state_;
  StateContents contents;
  try {
    s.load_jobs(contents);
    const auto spaces = s.load_spaces(contents);
    s.load_keys(spaces);
    s.load_entries(spaces);
    s.load_rounds(spaces);
    s.load_answers(spaces);
  } catch (const sqlite::Failure& failure) {
    throw cannot_open_state(s.path, failure);
  }
  return contents;
}

void StateFile::State::load_jobs(StateContents& into) {
  auto row = file.prepare("SELECT memory, incarnation, epoch, sum FROM service WHERE one=1");
  if (!row.run()) throw damaged_state(path, "the row of service is gone");
  require(row.has_types("iiii"), "service");
  memory = row.number(0);
  incarnation = row.number(1);
  epoch = row.number(2);
  require(row.integer(3) == sum_of("service", memory, incarnation, epoch), "service");
  into.memory = memory;
  auto drains = load_drains();
  const auto drain_of = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = drains.extract(name);
    if (found.empty()) return std::nullopt;
    return found.mapped();
  };
  JobRecord service{"", incarnation, epoch, std::nullopt, drain_of("")};
  if (incarnation > 0 || service.drained) into.jobs.push_back(std::move(service));
  auto job = file.prepare("SELECT job, incarnation, epoch, exit_code, sum FROM jobs");
  for (bool more = job.run(); more; more = job.next()) {
    require(job.has_types("biiIi"), "jobs");
    JobRecord record{job.text(0), job.number(1), job.number(2), std::nullopt};
    require(job.integer(4) == sum_of("jobs", record.job, record.incarnation, record.epoch,
                                     !job.is_null(3), job.integer(3)),
            "jobs");
    if (!job.is_null(3)) record.exit_code = static_cast<int>(job.integer(3));
    record.drained = drain_of(record.job);
    into.jobs.push_back(std::move(record));
  }
  if (!drains.empty()) throw damaged_state(path, "a row of drains belongs to no job");
}

std::map<std::string, std::string> StateFile::State::load_drains() {
  std::map<std::string, std::string> drains;
  if (!has_drains()) return drains;
  auto row = file.prepare("SELECT job, why, sum FROM drains");
  for (bool more = row.run(); more; more = row.next()) {
    require(row.has_types("bbi"), "drains");
    const std::string job = row.text(0), why = row.text(1);
    require(row.integer(2) == sum_of("drains", job, why), "drains");
    drains[job] = why;
  }
  return drains;
}

StateFile::State::Spaces StateFile::State::load_spaces(StateContents& into) {
  Spaces spaces;
  auto row = file.prepare("SELECT space, job, incarnation, epoch, sum FROM spaces");
  for (bool more = row.run(); more; more = row.next()) {
    require(row.has_types("ibiii"), "spaces");
    SpaceName name{row.text(1), row.number(2), row.number(3)};
    const change::Space number = row.integer(0);
    require(row.integer(4) == sum_of("spaces", number, name.job, name.incarnation, name.epoch),
            "spaces");
    into.next_space = std::max(into.next_space, number + 1);
    StateContents::Space& space = into.spaces[std::move(name)];
    space.number = number;
    spaces[number] = &space;
  }
  return spaces;
}

StateContents::Space& StateFile::State::space_of(const Spaces& spaces, change::Space number) const {
  const auto found = spaces.find(number);
  if (found == spaces.end()) throw damaged_state(path, "a row belongs to no namespace");
  return *found->second;
}

void StateFile::State::load_keys(const Spaces& into) {
  auto row = file.prepare("SELECT space, key, value, owner, lease, sum FROM keys");
  for (bool more = row.run(); more; more = row.next()) {
    require(row.has_types("ibbiii"), "keys");
    const BytesView value = row.bytes(2);
    const std::int64_t lease = row.integer(4);
    store::SpaceContents::Key key{
        row.text(1), {value.begin(), value.end()}, row.number(3), std::chrono::milliseconds(lease)};
    require(row.integer(5) == sum_of("keys", row.integer(0), key.key, key.value, key.owner, lease),
            "keys");
    space_of(into, row.integer(0)).contents.keys.push_back(std::move(key));
  }
}

void StateFile::State::load_entries(const Spaces& into) {
  auto row = file.prepare(
      "SELECT space, queue, number, value, sum FROM entries ORDER BY space, queue, number");
  for (bool more = row.run(); more; more = row.next()) {
    require(row.has_types("ibibi"), "entries");
    const BytesView raw = row.bytes(3);
    Bytes value(raw.begin(), raw.end());
    std::string queue = row.text(1);
    require(row.integer(4) == sum_of("entries", row.integer(0), queue, row.integer(2), value),
            "entries");
    space_of(into, row.integer(0))
        .contents.entries.emplace_back(std::move(queue), std::move(value));
  }
}

void StateFile::State::load_rounds(const Spaces& into) {
  auto row = file.prepare("SELECT space, gathers, name, round, block, too_big, sum FROM rounds");
  for (bool more = row.run(); more; more = row.next()) {
    require(row.has_types("iibiBbi"), "rounds");
    store::SpaceContents::Round round{row.integer(1) != 0, row.text(2), row.number(3), nullptr,
                                      row.text(5)};
    const bool has_block = !row.is_null(4);
    const BytesView block = row.bytes(4);
    require(row.integer(6) == sum_of("rounds", row.integer(0), row.integer(1), round.name,
                                     round.round, has_block, block, round.too_big),
            "rounds");
    if (has_block) round.block = std::make_shared<const Bytes>(block.begin(), block.end());
    space_of(into, row.integer(0)).contents.rounds.push_back(std::move(round));
  }
}

void StateFile::State::load_answers(const Spaces& into) {
  auto row = file.prepare(
      "SELECT space, session, slot, number, request, type, payload, sum FROM answers "
      "ORDER BY space, session, number");
  for (bool more = row.run(); more; more = row.next()) {
    require(row.has_types("iiiiiibi"), "answers");
    const BytesView payload = row.bytes(6);
    require(row.integer(7) == sum_of("answers", row.integer(0), row.number(1), row.number(2),
                                     row.number(3), row.number(4), row.integer(5), payload),
            "answers");
    StateContents::Space& space = space_of(into, row.integer(0));
    space.answers[row.number(1)] = row.number(3) + 1;
    space.contents.answers.push_back({row.number(1),
                                      row.number(4),
                                      static_cast<wire::Type>(row.integer(5)),
                                      {payload.begin(), payload.end()}});
  }
}

}  // namespace dlaunch::rendezvous
