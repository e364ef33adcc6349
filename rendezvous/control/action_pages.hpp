#pragma once

#include "rendezvous/control/operators.hpp"
#include "rendezvous/http/page.hpp"
#include "rendezvous/service/actions.hpp"

#include <optional>
#include <variant>

/// What HTTP requests ask of the daemon besides pages. Pure, and total.
namespace dlaunch::rendezvous {

/// An operator's words, beyond which a reason is refused.
constexpr std::size_t reason_bytes_max = 256;

/// Whether the request is no read.
bool is_action(const PageRequest& request);

/// What the request asks, or the answer to one that may not or cannot be carried out: 401 where no
/// operator's token comes with it, 403 where there are no operators, 405, 404 and 400 where it
/// makes no sense. Null: no operators are configured.
std::variant<Action, Page> action_of(const PageRequest& request, const Operators* operators);

/// The answer that tells the outcome: 200, 404 or 409; 503 for nullopt, where it was not taken up.
Page outcome_page(const std::optional<ActionOutcome>& outcome);

}  // namespace dlaunch::rendezvous
