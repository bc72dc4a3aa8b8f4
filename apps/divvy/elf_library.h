#pragma once

#include <string>
#include <string_view>

namespace divvy::app {

// Whether `path` is a whole shared library for x86-64 that defines `symbol` for others; one that
// only asks for it does not. It is not loaded.
[[nodiscard]] bool IsLibraryWith(std::string_view symbol, const std::string& path);

}  // namespace divvy::app
