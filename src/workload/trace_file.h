#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "workload/load.h"

namespace divvy::workload {

// A trace's arrivals of one model, in order of time.
struct ModelTrace {
  std::string model;  // Empty for a trace that names none (Azure's).
  std::vector<Arrival> arrivals;
};

struct Trace {
  std::vector<ModelTrace> models;  // By name.
  Duration length = {};            // Of the last arrival.
};

// How to read a trace that counts tokens: a request of n tokens has
// ceil(n / tokens_per_item) items.
struct TokenScale {
  int tokens_per_item = 128;
};

// Reads `arrival_s,model,batch`, or an Azure LLM inference trace
// (TIMESTAMP,ContextTokens,GeneratedTokens; time counts from its first row and
// context tokens are the size), told apart by the header. Rows out of order are an
// error, and so is a trace without rows. Any bytes give a value or kInvalidArgument
// with "FILE:LINE: what is wrong, and what would be right". docs/formats/trace.md
// describes the file for its authors.
[[nodiscard]] Result<Trace> ParseTrace(std::string_view text, std::string_view file_name,
                                       TokenScale scale = {});

// How often each size occurs; kInvalidArgument for a trace without arrivals.
[[nodiscard]] Result<BatchDistribution> BatchesOf(const ModelTrace& trace);

}  // namespace divvy::workload
