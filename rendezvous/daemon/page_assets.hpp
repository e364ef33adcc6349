#pragma once

#include <span>
#include <string_view>

namespace dlaunch::rendezvous {

/// A file of the page at "/", as it lies in rendezvous/daemon/page.
struct PageAsset {
  std::string_view path;
  std::string_view content_type;
  std::string_view text;
};

/// The files that were built in. They live as long as the program.
std::span<const PageAsset> page_assets();

}  // namespace dlaunch::rendezvous
