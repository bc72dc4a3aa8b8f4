#pragma once

#include <span>
#include <string>
#include <string_view>

namespace divvy {

// The candidate closest to `word` by edits (insert, delete, replace, swap of
// neighbours), letters of either case alike; empty when none is close enough to
// be a likely slip. Ties go to the earlier candidate.
[[nodiscard]] std::string_view NearestSpelling(std::string_view word,
                                               std::span<const std::string_view> candidates);

// "; did you mean 'x'?" for the nearest candidate, or an empty string.
[[nodiscard]] std::string DidYouMean(std::string_view word,
                                     std::span<const std::string_view> candidates);

// "a, b or c", for errors that list what would be right.
[[nodiscard]] std::string OneOf(std::span<const std::string_view> choices);

}  // namespace divvy
