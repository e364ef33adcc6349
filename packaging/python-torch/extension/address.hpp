#pragma once

#include <string>
#include <vector>

/// What the name of a host means on this one.
namespace dlaunch::torch_backend {

/// Its addresses as text, in the resolver's order; none if nobody knows it.
std::vector<std::string> addresses_of(const std::string& host);
/// An address of 127.0.0.0/8, or ::1: at it each host reaches itself.
bool is_loopback(const std::string& address);
/// Whether a socket of this host can listen there.
bool is_own(const std::string& address);
/// The address of this host from which `host` is reached; empty if it is not.
std::string own_address_toward(const std::string& host);
/// This host's name.
std::string own_name();
/// The same for all processes that reach each other by their loopback addresses: this boot of the
/// host, and the network namespace. Two hosts may have one name.
std::string own_identity();

}  // namespace dlaunch::torch_backend
