#include "runtime/store/native/roles.hpp"

#include "runtime/store/core/key_values.hpp"

#include <algorithm>
#include <array>

namespace dlaunch::store {
namespace {

struct Least {
  wire::Type type{};
  std::string_view call;
  Role role = Role::node;
};

template <class Message>
constexpr Least row(std::string_view call, Role role) {
  return {Message::type, call, role};
}

/// The least role for each of the store's requests. Messages for the host, which decides who is
/// part of a job, need the role of a node.
constexpr auto rows = std::to_array<Least>({
    row<request::Get>("get", Role::read_only),
    row<request::MultiGet>("multi_get", Role::read_only),
    row<request::List>("list", Role::read_only),
    row<request::ListPage>("list", Role::read_only),
    row<request::Count>("count", Role::read_only),
    row<request::Wait>("wait", Role::read_only),
    row<request::WaitGet>("wait", Role::read_only),
    row<request::QueueSize>("queue_size", Role::read_only),
    row<request::Watch>("watch", Role::read_only),
    row<request::Cancel>("cancel", Role::read_only),
    row<request::Set>("set", Role::tool),
    row<request::SetLeased>("set with a lease", Role::tool),
    row<request::MultiSet>("multi_set", Role::tool),
    row<request::Add>("add", Role::tool),
    row<request::CompareSet>("compare_set", Role::tool),
    row<request::Append>("append", Role::tool),
    row<request::Erase>("erase", Role::tool),
    row<request::Push>("push", Role::tool),
    row<request::TryPop>("pop", Role::tool),
    row<request::Pop>("pop", Role::tool),
    row<request::Renew>("renew", Role::tool),
    row<request::EndLeases>("end_leases", Role::tool),
    row<request::Barrier>("barrier", Role::node),
    row<request::AllGather>("all_gather", Role::node),
});

constexpr const Least* row_of(wire::Type type) {
  const auto* const found = std::ranges::find(rows, type, &Least::type);
  return found == rows.end() ? nullptr : found;
}

static_assert(!request::Requests::any([](auto operation) {
  return row_of(decltype(operation)::Message::type) == nullptr;
}));

}  // namespace

std::string_view name_of(Role role) {
  constexpr std::array<std::string_view, 3> names = {"read-only", "tool", "node"};
  return names.at(static_cast<std::size_t>(role));
}

std::string beyond(Role role, wire::Type type) {
  const Least* const found = row_of(type);
  const bool for_host = wire::party_of(type) == wire::Party::host;
  if (found == nullptr && !for_host) return "";
  const Role least = for_host ? Role::node : found->role;
  if (role >= least) return "";
  const std::string_view call = for_host ? "to take part in a job" : found->call;
  return std::string(call) + " takes the role " + std::string(name_of(least)) +
         ", and this connection's secret is for the role " + std::string(name_of(role));
}

}  // namespace dlaunch::store
