#include "rendezvous/control/action_pages.hpp"

#include "rendezvous/http/request.hpp"
#include "runtime/base/text/control.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch::rendezvous {
namespace {

using Kind = Action::Kind;

constexpr std::string_view api = "/api/v1/";
constexpr std::size_t segments_max = 5;
constexpr std::size_t backup_name_bytes_max = 64;

/// The segments between the slashes, decoded; nullopt where they make no sense.
std::optional<std::vector<std::string>> segments_of(std::string_view path) {
  if (!path.starts_with(api)) return std::nullopt;
  path.remove_prefix(api.size());
  std::vector<std::string> segments;
  for (;;) {
    const auto end = path.find('/');
    auto segment = percent_decoded(path.substr(0, end));
    if (!segment || segments.size() == segments_max) return std::nullopt;
    segments.push_back(*std::move(segment));
    if (end == std::string_view::npos) return segments;
    path.remove_prefix(end + 1);
  }
}

/// The action of a method and path; nullopt where there is none.
std::optional<Action> routed(std::string_view method, std::string_view path) {
  const auto found = segments_of(path);
  if (!found || std::ranges::any_of(*found, &std::string::empty)) return std::nullopt;
  const auto& at = *found;
  const bool posts = method == "POST";
  Action action;
  if (at.size() == 1 && at[0] == "drain") {
    action.kind = posts ? Kind::drain_all : Kind::resume_all;
    return action;
  }
  if (at.size() == 2 && at[0] == "backups" && posts) {
    action.kind = Kind::backup;
    action.backup = at[1];
    return action;
  }
  if (at.size() < 2 || at[0] != "jobs") return std::nullopt;
  action.job = at[1];
  if (at.size() == 2 && !posts) {
    action.kind = Kind::remove;
  } else if (at.size() == 3 && posts && (at[2] == "stop" || at[2] == "drain")) {
    action.kind = at[2] == "stop" ? Kind::stop : Kind::drain;
  } else if (at.size() == 5 && posts && at[2] == "nodes" && at[4] == "evict") {
    action.kind = Kind::evict;
    action.node = at[3];
  } else {
    return std::nullopt;
  }
  return action;
}

/// Whether a job or a node can have this name. Empty: no name is given.
bool is_name(std::string_view name) {
  return name.size() <= name_bytes_max && std::ranges::none_of(name, is_control);
}

/// It becomes a file's: no dot, as in "..", and nothing that SQLite has a meaning for.
bool is_backup_name(std::string_view name) {
  return name.size() <= backup_name_bytes_max && std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_';
         });
}

/// The value of `reason` in "a=b&reason=c"; nullopt where it is none that a line can have.
std::optional<std::string> reason_in(std::string_view query) {
  constexpr std::string_view key = "reason=";
  while (!query.empty()) {
    const auto part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(part.size() + 1, query.size()));
    if (!part.starts_with(key)) continue;
    auto reason = percent_decoded(part.substr(key.size()));
    if (!reason || reason->size() > reason_bytes_max || std::ranges::any_of(*reason, is_control)) {
      return std::nullopt;
    }
    return reason;
  }
  return "";
}

/// The token of "Bearer TOKEN"; empty for anything else.
std::string_view bearer(std::string_view authorization) {
  constexpr std::string_view scheme = "bearer ";
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  if (!std::ranges::equal(authorization.substr(0, scheme.size()), scheme, {}, lower)) return {};
  authorization.remove_prefix(scheme.size());
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' '), authorization.size()));
  return authorization;
}

}  // namespace

bool is_action(const PageRequest& request) { return request.method != "GET"; }

std::variant<Action, Page> action_of(const PageRequest& request, const Operators* operators) {
  if (!request.target.starts_with(api)) {
    return sentence_page(
        405, "this page is read by GET and HEAD; actions begin with " + std::string(api));
  }
  if (operators == nullptr) {
    return sentence_page(403,
                         "nobody may act on this dlaunchd: set http-token-file in its "
                         "configuration to a file with lines of NAME TOKEN");
  }
  const auto token = bearer(request.authorization);
  if (token.empty()) {
    return sentence_page(401, "an action needs the header Authorization: Bearer TOKEN");
  }
  auto by = operators->name_of(token);
  if (!by) return sentence_page(401, "this token is no operator's");
  const auto path = request.target.substr(0, request.target.find('?'));
  auto action = routed(request.method, path);
  if (!action) {
    return sentence_page(404,
                         "there is no such action; there are POST /api/v1/jobs/JOB/stop, "
                         "/api/v1/jobs/JOB/drain, /api/v1/jobs/JOB/nodes/NODE/evict, "
                         "/api/v1/drain and /api/v1/backups/NAME, and DELETE /api/v1/jobs/JOB and "
                         "/api/v1/drain");
  }
  if (!is_name(action->job) || !is_name(action->node)) {
    return sentence_page(400,
                         "a job's and a node's name has at most 255 bytes, none of them a control "
                         "character");
  }
  if (action->kind == Kind::backup && !is_backup_name(action->backup)) {
    return sentence_page(400,
                         "a backup's name has at most 64 letters, digits, '-' and '_'; its file "
                         "has .db behind");
  }
  auto reason = reason_in(request.target.substr(std::min(path.size() + 1, request.target.size())));
  if (!reason) {
    return sentence_page(400, "a reason has at most 256 bytes, none of them a control character");
  }
  action->reason = *std::move(reason);
  action->by = *std::move(by);
  action->from = request.peer;
  return *std::move(action);
}

Page outcome_page(const std::optional<ActionOutcome>& outcome) {
  if (!outcome) {
    return sentence_page(503, "the loop that serves the agents does not answer; nothing was done");
  }
  switch (outcome->result) {
    case ActionOutcome::Result::done:
      return sentence_page(200, outcome->sentence);
    case ActionOutcome::Result::no_job:
    case ActionOutcome::Result::no_node:
      return sentence_page(404, outcome->sentence);
    case ActionOutcome::Result::not_now:
      break;
  }
  return sentence_page(409, outcome->sentence);
}

}  // namespace dlaunch::rendezvous
