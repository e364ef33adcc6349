#include "launcher/scheduler/scheduler.hpp"

#include "launcher/request/option_values.hpp"
#include "launcher/request/variables.hpp"
#include "launcher/scheduler/scheduler_sources.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text_hash.hpp"

#include <algorithm>

namespace dlaunch::launcher {
namespace {

constexpr std::uint64_t port_first = 15'000;
/// The largest prime below 10000, so that no two small differences of job and step cancel out.
constexpr std::uint64_t port_count = 9'973;
constexpr std::uint64_t ports_per_job = 99;

/// Whether this process is a worker of dlaunch or torchrun, whose launcher sees to everything.
bool is_of_launcher(const Variables& variables) {
  return variables.has("DLAUNCH_WORKER_JOB") || variables.has("TORCHELASTIC_RUN_ID");
}

}  // namespace

std::optional<std::string_view> Variables::find(std::string_view name) const {
  const auto value = lookup(environment_, name);
  return value && !value->empty() ? value : std::nullopt;
}

bool Variables::has_prefix(std::string_view prefix) const {
  return std::any_of(environment_.begin(), environment_.end(),
                     [&](const std::string& line) { return line.starts_with(prefix); });
}

int Variables::number(SchedulerPlace& place, std::string_view name, int least, int most) const {
  const auto value = find(name);
  const auto read = value ? read_integer(*value, least, most) : Complaint{"it is missing"};
  if (const auto* complaint = std::get_if<Complaint>(&read)) {
    if (place.refusal.empty()) {
      place.refusal = std::string(place.scheduler) + "'s variable " + std::string(name) + ": " +
                      complaint->sentence +
                      "; --nnodes 1 runs this node by itself, whatever the variables say";
    }
    return least;
  }
  return static_cast<int>(std::get<long>(read));
}

std::optional<long> Variables::number_if(std::string_view name) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  const auto read = read_integer(*value, 0, std::numeric_limits<long>::max());
  const auto* number = std::get_if<long>(&read);
  return number == nullptr ? std::nullopt : std::optional(*number);
}

void refuse_several(SchedulerPlace& place, std::string_view starter, int starts, int nodes,
                    std::string_view once) {
  if (!place.refusal.empty()) return;
  place.refusal =
      std::string(starter) + " started dlaunch " + std::to_string(starts) + " times on " +
      (nodes == 1 ? "one node" : std::to_string(nodes) + " nodes") +
      ", but it is to be started once on each and starts the workers itself: " + std::string(once) +
      " dlaunch --nproc-per-node ...; --standalone where each is a job of its own";
}

std::uint16_t port_of_job(std::uint64_t job, std::uint64_t step) {
  // Reduced first, so that nothing overflows.
  const std::uint64_t slot = job % port_count * ports_per_job + step % port_count;
  return static_cast<std::uint16_t>(port_first + slot % port_count);
}

std::uint16_t port_of_job(std::string_view name) { return port_of_job(text_hash(name), 0); }

std::optional<SchedulerPlace> scheduler_place(std::span<const std::string> environment,
                                              const FileReader& read_file) {
  const Variables variables(environment);
  if (is_of_launcher(variables)) return std::nullopt;
  for (const auto& [name, read] : schedulers) {
    SchedulerPlace place;
    place.scheduler = name;
    if (read(place, variables, read_file)) return place;
  }
  return std::nullopt;
}

Told scheduler_deadline(std::span<const std::string> environment) {
  const Variables variables(environment);
  return is_of_launcher(variables) ? Told{} : deadline_of_slurm_job(variables);
}

SchedulerSettings scheduler_settings(const SchedulerPlace& place, const AskedOfNodes& asked) {
  if (asked.standalone || asked.most == 1) return {};
  SchedulerSettings told;
  if (!place.refusal.empty()) {
    told.refusal = place.refusal;
    return told;
  }
  const int most = asked.most.value_or(place.node_count.value_or(1));
  if (most == 1) {
    told.note = place.alone;
    return told;
  }
  const auto set = [&](std::string_view flag, std::string value, const std::string& from) {
    const std::string where = std::string(place.scheduler) + ": " + from;
    told.settings.push_back({flag, std::move(value), Origin::scheduler, where});
  };
  if (!asked.most) set("nnodes", std::to_string(most), place.count_from);
  // If fewer nodes were asked for than there are, the rest are spares: they wait unnumbered.
  if (place.node_rank && *place.node_rank < most) {
    set("node-rank", std::to_string(*place.node_rank), place.rank_from);
  }
  if (!place.node_name.value.empty()) set("node-id", place.node_name.value, place.node_name.from);
  if (!place.job_id.value.empty()) set("rdzv-id", place.job_id.value, place.job_id.from);
  if (asked.meeting) return told;
  if (place.head.value.empty()) {
    return {.settings = {}, .note = {}, .refusal = place.head_missing};
  }
  set("rdzv-endpoint", host_port(place.head.value, place.port), place.head.from);
  set("rdzv-role", place.first ? "host" : "join", place.rank_from);
  return told;
}

}  // namespace dlaunch::launcher
