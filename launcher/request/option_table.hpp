#pragma once

#include "launcher/request/job_spec.hpp"

#include <span>
#include <string>
#include <string_view>

/// The options of the launcher, each in one row.
namespace dlaunch::launcher {

/// A job while it is being resolved.
struct Draft : JobSpec {
  bool standalone = false;
  std::string master_addr;
  std::string rdzv_endpoint;
  std::string hosts_text;  ///< Of --hosts.
  Binding bind = Binding::none;
  Binding numa_binding = Binding::none;
};

std::span<const OptionRow<Draft>> option_rows();
const OptionTable& option_table();
/// The title of the options that say how the program is run.
inline constexpr std::string_view program_section = "Program";

/// The option that a variable stands for, "NNODES" behind DLAUNCH_ or PET_; nullptr for none. No
/// worker may inherit such a variable.
const Option* option_of_variable(std::string_view name);
/// The variable that was probably meant by one that stands for no option: "DLAUNCH_MAX_RESTARTS"
/// for "DLAUNCH_MAX_RESTART"; empty where none is near, or the name means something else.
std::string nearest_variable(std::string_view name);

}  // namespace dlaunch::launcher
