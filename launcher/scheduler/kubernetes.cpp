#include "launcher/request/option_values.hpp"
#include "launcher/scheduler/node_list.hpp"
#include "launcher/scheduler/scheduler_sources.hpp"
#include "runtime/base/phrases.hpp"

namespace dlaunch::launcher {
namespace {

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  line = line.substr(0, line.find('#'));
  while (true) {
    const auto start = line.find_first_not_of(" \t\r");
    if (start == std::string_view::npos) return words;
    line.remove_prefix(start);
    words.push_back(line.substr(0, line.find_first_of(" \t\r")));
    line.remove_prefix(words.back().size());
  }
}

/// The domain of this pod: the kubelet writes "10.1.0.7 train-1.train.space.svc.cluster.local
/// train-1" where the pod has a subdomain. Empty where it has none.
Told domain_of(std::string_view name, const FileReader& read_file) {
  constexpr std::size_t file_max = 1 << 20;
  const std::string path = "/etc/hosts";
  const auto text = read_file ? read_file(path) : std::nullopt;
  if (!text || text->size() > file_max) return {};
  for (const auto line : split(*text, '\n')) {
    const auto words = words_of(line);
    for (std::size_t i = 1; i < words.size(); ++i) {
      const bool is_full = words[i].size() > name.size() + 1 && words[i].starts_with(name) &&
                           words[i][name.size()] == '.';
      if (is_full) return {std::string(words[i].substr(name.size() + 1)), path};
    }
  }
  return {};
}

/// The pod's own name, taken apart: "train-1", and its domain where that is known.
struct PodName {
  std::string label;
  Told domain;
};

PodName pod_name(const Variables& variables, const FileReader& read_file) {
  const std::string whole = variables.text("HOSTNAME");
  const auto dot = whole.find('.');
  PodName name{whole.substr(0, dot), {}};
  if (dot != std::string::npos) {
    name.domain = {whole.substr(dot + 1), "HOSTNAME"};  // setHostnameAsFQDN
  } else if (!whole.empty()) {
    name.domain = domain_of(whole, read_file);
  }
  return name;
}

std::string alone_in(const SchedulerPlace& place, const std::string& index) {
  const std::string& name = place.job_id.value;
  return "pod " + index + " of the " + std::string(place.scheduler) + (name.empty() ? "" : " ") +
         name +
         " runs as a job of its own: Kubernetes does not tell how many pods there are; --nnodes N "
         "makes one job of them, --nnodes 1 says that this is meant";
}

/// Reads the index of this pod in its Job; false where it is in none.
bool read_index(SchedulerPlace& place, const Variables& variables) {
  place.rank_from = "JOB_COMPLETION_INDEX";
  if (!variables.has(place.rank_from)) return false;
  place.node_rank = variables.number(place, place.rank_from, 0, listed_nodes_max - 1);
  place.first = place.node_rank == 0;
  return true;
}

/// Head and job of an Indexed Job: its pods are called <job>-<index>.
void locate_in_job(SchedulerPlace& place, const PodName& pod, const std::string& index) {
  if (!pod.label.ends_with("-" + index) || pod.label.size() <= index.size() + 1) {
    place.head_missing = "the host name " + in_quotes(pod.label) + " is not the Job's name and -" +
                         index +
                         " (with hostNetwork it is the node's), so the first pod's name is not "
                         "known: add --rdzv-endpoint HOST:PORT";
    return;
  }
  const std::string job = pod.label.substr(0, pod.label.size() - index.size() - 1);
  place.job_id = {job, "HOSTNAME"};
  place.port = port_of_job(job);
  if (pod.domain.value.empty()) {
    place.head_missing = "the pod " + pod.label + " has no domain, so the others cannot look up " +
                         job +
                         "-0: set spec.template.spec.subdomain of the Job to the name of a "
                         "headless Service, or add --rdzv-endpoint HOST:PORT";
    return;
  }
  place.head = {job + "-0." + pod.domain.value, "HOSTNAME, " + pod.domain.from};
}

/// "<jobset>-<replicated job>-<job>-<pod>": which job of the replicated job this pod is in.
std::optional<long> job_index(const Variables& variables, const PodName& pod,
                              const std::string& stem) {
  if (const auto index = variables.number_if("JOB_INDEX")) return index;
  if (!pod.label.starts_with(stem + "-")) return std::nullopt;
  const std::string_view rest = std::string_view(pod.label).substr(stem.size() + 1);
  const auto read = read_integer(rest.substr(0, rest.find('-')), 0, listed_nodes_max);
  const auto* index = std::get_if<long>(&read);
  return index == nullptr ? std::nullopt : std::optional(*index);
}

void locate_in_jobset(SchedulerPlace& place, const Variables& variables, const PodName& pod) {
  const std::string set = variables.text("JOBSET_NAME");
  const std::string stem = set + "-" + variables.text("REPLICATED_JOB_NAME");
  place.job_id = {stem, "JOBSET_NAME, REPLICATED_JOB_NAME"};
  place.port = port_of_job(stem);
  // JobSet's headless Service is called as the JobSet unless spec.network.subdomain says otherwise.
  const bool known = !pod.domain.value.empty();
  place.head = {stem + "-0-0." + (known ? pod.domain.value : set),
                "JOBSET_NAME, REPLICATED_JOB_NAME" + (known ? ", " + pod.domain.from : "")};
  // The number of pods in the jobs before this one is not known, so this pod has no rank.
  if (job_index(variables, pod, stem).value_or(0) > 0) {
    place.node_rank.reset();
    place.first = false;
  }
}

}  // namespace

bool read_jobset(SchedulerPlace& place, const Variables& variables, const FileReader& read_file) {
  const bool has_names = variables.has("JOBSET_NAME") && variables.has("REPLICATED_JOB_NAME");
  if (!has_names || !read_index(place, variables)) return false;
  const std::string index = std::to_string(*place.node_rank);
  locate_in_jobset(place, variables, pod_name(variables, read_file));
  place.alone = alone_in(place, index);
  return true;
}

bool read_kubernetes_job(SchedulerPlace& place, const Variables& variables,
                         const FileReader& read_file) {
  if (!read_index(place, variables)) return false;
  const std::string index = std::to_string(*place.node_rank);
  locate_in_job(place, pod_name(variables, read_file), index);
  place.alone = alone_in(place, index);
  return true;
}

bool read_pytorch_job(SchedulerPlace& place, const Variables& variables, const FileReader&) {
  // Kubeflow's Trainer sets PET_ variables beside these; those are options already.
  if (!variables.has("KUBERNETES_SERVICE_HOST") || variables.has_prefix("PET_")) return false;
  for (const auto name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    if (!variables.has(name)) return false;
  }
  const int count = variables.number(place, "WORLD_SIZE", 1, listed_nodes_max);
  place.node_count = count;
  place.count_from = "WORLD_SIZE";
  place.node_rank = variables.number(place, "RANK", 0, count - 1);
  place.rank_from = "RANK";
  place.first = place.node_rank == 0;
  constexpr int port_max = 65'535;
  place.port = static_cast<std::uint16_t>(variables.number(place, "MASTER_PORT", 1, port_max));
  place.head = {variables.text("MASTER_ADDR"), "MASTER_ADDR"};
  // Early operators told the master pod "localhost", where the others cannot come.
  if (place.first && is_loopback_name(place.head.value) && variables.has("HOSTNAME")) {
    place.head = {variables.text("HOSTNAME"), "HOSTNAME"};
  }
  return true;
}

}  // namespace dlaunch::launcher
