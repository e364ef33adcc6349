#pragma once

#include "launcher/job/agent.hpp"
#include "launcher/job/core/supervisor.hpp"
#include "launcher/output/output.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/watch/job_entry.hpp"
#include "rendezvous/service/job_host.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace dlaunch::launcher {

/// The supervisor's rules, as they follow from the options.
SupervisorRules rules_of(const AgentTask& task);

/// The programs with their arguments: "./server : ./client --verbose".
std::string program_text(const JobSpec& spec);

LaunchPlan plan_of(const AgentTask& task, const Assignment& assignment);

/// Takes the workers' output; null where all of them keep our streams.
std::unique_ptr<Output> make_output(const AgentTask& task, Output::OnTraceback on_traceback);

/// The answer to `dlaunch logs` and `stack` about the workers; `output` may be null.
JobRanks ranks_of(const LaunchPlan& plan, const std::vector<pid_t>& pids, const Output* output);

/// The job in this epoch, as this node's workers must know it; `mesh_host`: where other nodes'
/// workers reach them.
rendezvous::JobIdentity identity_of(const AgentTask& task, const Assignment& assignment,
                                    const rendezvous::Admission& admission,
                                    const std::string& mesh_host);

/// The clients to which node rank 0 serves PyTorch's store, known from its admission alone.
/// nullopt: everybody; so it is, too, where a node has published a name, whose addresses cannot be
/// known.
using StoreClients = std::optional<std::vector<std::string>>;
StoreClients store_clients(const rendezvous::Admission& admission);

}  // namespace dlaunch::launcher
