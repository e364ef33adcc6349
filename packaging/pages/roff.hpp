#pragma once

#include "runtime/base/text/options.hpp"

#include <string>
#include <string_view>
#include <vector>

/// Text as manual pages have it, by the macros of man(7). Pure.
namespace dlaunch::pages {

/// Escaped: it comes out letter by letter. One line in, one line out.
std::string roff(std::string_view text);
std::string roff_bold(std::string_view text);
/// A line of Markdown: `code` and **bold** become bold, links their text.
std::string roff_of_markdown(std::string_view text);

/// An entry of a list: what it is about, already in roff, and a paragraph.
std::string roff_entry(const std::string& head, const std::string& body);

/// A program's options, section by section.
std::string roff_options(const std::vector<const Option*>& options);
/// Those that are keys of a configuration file.
std::string roff_keys(const std::vector<const Option*>& options);

/// The rows behind a heading of a Markdown page, in its first table. Throws std::runtime_error
/// where there is none.
std::string roff_table(std::string_view page, std::string_view heading);

}  // namespace dlaunch::pages
