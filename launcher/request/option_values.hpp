#pragma once

#include "launcher/request/job_spec.hpp"
#include "runtime/base/text/values.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The values options take, read from text. Each reader says in a sentence what is wrong instead;
/// the caller puts the option's name before it.
namespace dlaunch::launcher {

/// "8080" or "0.0.0.0:8080"; without a host it is 127.0.0.1.
Read<HealthAt> read_health_at(std::string_view text);
/// "3" or "0:1,1:2".
Read<StreamsByRank> read_streams(std::string_view text);
/// "0,2,5"; empty text means none.
Read<std::vector<int>> read_ranks(std::string_view text);
/// "apple,orange"; ",," stands for a comma in a word, empty words are dropped.
Read<std::vector<std::string>> read_words(std::string_view text);
/// "SIGTERM,SIGUSR1": names with or without SIG, none that cannot be caught.
Read<std::vector<int>> read_signals(std::string_view text);
/// "SIGUSR1": one of them.
Read<int> read_signal(std::string_view text);
/// "90m", "2026-11-23T14:00:00Z", "2026-11-23T14:00Z", "@1795442400"; "0": none.
Read<DeadlineAsked> read_deadline(std::string_view text);
/// "ssh -T": a program and its first arguments.
Read<std::vector<std::string>> read_program(std::string_view text);
/// "a:4,b:2", or lines of a file as Open MPI has them, "a slots=4", and "# ..." for comments.
Read<std::vector<HostAsked>> read_hosts(std::string_view text);
/// "NAME=VALUE", or "NAME" alone; none that dlaunch sets itself, or keeps from workers.
Read<VariableAsked> read_variable(std::string_view text);
/// "key=value, key=value"; empty text means none.
Read<std::map<std::string, std::string>> read_pairs(std::string_view text);
/// Changes `times` as --rdzv-conf says; keys that only torchrun's backends know go to `unused`.
Read<RendezvousTimes> read_rendezvous_conf(std::string_view text, RendezvousTimes times,
                                           std::vector<std::string>& unused);
/// "1s:1m"; "1s" alone has 10 s behind it, or as much.
Read<RestartPauses> read_restart_backoff(std::string_view text);
/// "2", "1:4".
Read<NodesAsked> read_nodes(std::string_view text);

/// "10.0.0.1", "fe80::1": no name.
bool is_numeric_host(std::string_view host);

}  // namespace dlaunch::launcher
