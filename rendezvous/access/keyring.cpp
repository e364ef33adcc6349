#include "rendezvous/access/keyring.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

/// How many withdrawn secrets are remembered; each costs a stranger's handshake one more attempt.
constexpr std::size_t withdrawn_max = 2;
constexpr std::array<std::string_view, 2> places = {"the first", "the second"};

store::KeyOfJob key_of(const Secret& secret) {
  return [secret](std::string_view job) { return secret.job_key(job); };
}

}  // namespace

/// Secrets cannot be compared, so the MACs that they make are.
bool Keyring::same(const Secret& one, const Secret& other) {
  const auto mark = [](const Secret& secret) {
    return mac_of(secret.job_key(""), as_bytes("dlaunch 1 same secret"));
  };
  return same_mac(mark(one), mark(other));
}

void Keyring::accept(const std::vector<Granted>& secrets) {
  for (const Granted& one : secrets) {
    for (const Granted& other : secrets) {
      if (one.role == other.role || !same(one.secret, other.secret)) continue;
      throw Error(Errc::misuse, "one secret is given for the roles " +
                                    std::string(store::name_of(one.role)) + " and " +
                                    std::string(store::name_of(other.role)) +
                                    ": each role needs a secret of its own");
    }
  }
  std::deque<Known> before = std::exchange(accepted_, {});
  for (const auto& [number, granted] : withdrawn_) before.push_back({number, granted});
  withdrawn_.clear();
  for (const Granted& one : secrets) {
    const auto is_it = [&](const Known& known) {
      return known.granted.role == one.role && same(known.granted.secret, one.secret);
    };
    if (std::ranges::any_of(accepted_, is_it)) continue;
    const auto known = std::ranges::find_if(before, is_it);
    const bool is_new = known == before.end();
    accepted_.push_back({is_new ? ++last_ : known->number, one});
    if (!is_new) before.erase(known);
  }
  for (auto& known : before) {
    if (withdrawn_.size() < withdrawn_max) withdrawn_.push_back(std::move(known));
  }
}

std::vector<store::ServerKey> Keyring::keys() const {
  std::vector<store::ServerKey> keys;
  for (const auto& [number, granted] : accepted_) {
    keys.push_back({.number = number, .key_of = key_of(granted.secret), .role = granted.role});
  }
  for (const auto& [number, granted] : withdrawn_) {
    keys.push_back({.number = number,
                    .key_of = key_of(granted.secret),
                    .refusal = "this secret is not accepted here any more: another one took its "
                               "place; give the new one"});
  }
  return keys;
}

/// "it", "the second", "the one for tools", "the second for nodes".
std::string Keyring::name_of(std::size_t accepted) const {
  if (accepted_.size() == 1) return "it";
  constexpr std::array<std::string_view, 3> uses = {" for reading", " for tools", " for nodes"};
  const auto role = accepted_[accepted].granted.role;
  std::size_t place = 0, count = 0;
  for (std::size_t i = 0; i < accepted_.size(); ++i) {
    if (accepted_[i].granted.role != role) continue;
    if (i < accepted) ++place;
    ++count;
  }
  const bool all = count == accepted_.size();
  return std::string(count == 1 ? "the one" : places.at(place)) +
         std::string(all ? "" : uses.at(static_cast<std::size_t>(role)));
}

std::string Keyring::report(
    const std::function<std::size_t(std::uint64_t key)>& connections) const {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < accepted_.size(); ++i) {
    const auto count = static_cast<long>(connections(accepted_[i].number));
    parts.push_back(plural(count, "connection") + " by " + name_of(i));
  }
  std::size_t old = 0;
  for (const auto& known : withdrawn_) old += connections(known.number);
  if (old > 0)
    parts.push_back(plural(static_cast<long>(old), "connection") + " by a withdrawn one");
  return plural(static_cast<long>(accepted_.size()), "secret") +
         (accepted_.size() == 1 ? " is" : " are") + " accepted: " + joined(parts);
}

}  // namespace dlaunch::rendezvous
