#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace dlaunch::launcher {

/// null for what is not known, which is empty here.
inline nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

}  // namespace dlaunch::launcher
