#pragma once

#include "rendezvous/control/operators.hpp"
#include "rendezvous/http/page.hpp"
#include "rendezvous/service/actions.hpp"

#include <optional>
#include <variant>

/// Turns HTTP requests that are no reads into actions. Pure, and total.
namespace dlaunch::rendezvous {

/// The longest reason that an operator may give.
constexpr std::size_t reason_bytes_max = 256;

/// Whether the request asks for more than a page.
bool is_action(const PageRequest& request);

/// The requested action, or the answer to a request that is refused: 401 without an operator's
/// token, 403 where there are no operators, 405, 404 and 400 where it makes no sense. `operators`
/// may be null: none are configured.
std::variant<Action, Page> action_of(const PageRequest& request, const Operators* operators);

/// The answer that tells the outcome: 200, 404 or 409; 503 for nullopt, where it was not taken up.
Page outcome_page(const std::optional<ActionOutcome>& outcome);

}  // namespace dlaunch::rendezvous
