#include "engine/batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>

#include "base/text_safety.h"

namespace divvy::engine {
namespace {

using kserve::DataType;
using kserve::Tensor;
using kserve::TensorMetadata;

tl::unexpected<Error> Refuse(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

std::string Names(const std::vector<TensorMetadata>& tensors) {
  std::vector<std::string_view> names;
  for (const TensorMetadata& tensor : tensors) names.push_back(tensor.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool Has(const std::vector<TensorMetadata>& tensors, std::string_view name) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const TensorMetadata& tensor) { return tensor.name == name; });
}

bool Fits(const kserve::Shape& shape, const kserve::Shape& declared) {
  return std::equal(shape.begin(), shape.end(), declared.begin(), declared.end(),
                    [](std::int64_t is, std::int64_t may) { return may == -1 || is == may; });
}

Result<Tensor> CheckInput(const kserve::ModelMetadata& model, const TensorMetadata& declared,
                          const kserve::InferRequest& request) {
  const Tensor* found = nullptr;
  for (const Tensor& input : request.inputs) {
    if (input.name != declared.name) continue;
    if (found != nullptr) return Refuse(fmt::format("input '{}' is given twice", declared.name));
    found = &input;
  }
  if (found == nullptr) {
    return Refuse(fmt::format("input '{}' is missing: model '{}' takes {}", declared.name,
                              model.name, Names(model.inputs)));
  }
  if (found->type != declared.type) {
    return Refuse(fmt::format("input '{}' is of type {}, but model '{}' takes {}", declared.name,
                              kserve::Name(found->type), model.name, kserve::Name(declared.type)));
  }
  if (!Fits(found->shape, declared.shape)) {
    return Refuse(fmt::format("input '{}' has shape [{}], but model '{}' takes [{}]{}",
                              declared.name, fmt::join(found->shape, ","), model.name,
                              fmt::join(declared.shape, ","),
                              model.max_batch > 0 ? ", the first being the batch" : ""));
  }
  if (auto fits = kserve::CheckBytes(found->type, found->shape, found->bytes, found->name); !fits) {
    return Fail(fits.error());
  }
  return *found;
}

bool SameButFirst(const Member& a, const Member& b) {
  return std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(),
                    [](const Tensor& x, const Tensor& y) {
                      // Names and types are the model's for both; the rank is, too.
                      return std::equal(x.shape.begin() + 1, x.shape.end(), y.shape.begin() + 1,
                                        y.shape.end());
                    });
}

// Where the next element of a tensor of texts begins; nothing when its lengths run over the end.
std::optional<std::size_t> AfterText(std::string_view bytes, std::size_t at) {
  std::uint32_t length = 0;
  if (bytes.size() - at < sizeof length) return std::nullopt;
  std::memcpy(&length, bytes.data() + at, sizeof length);
  at += sizeof length;
  if (bytes.size() - at < length) return std::nullopt;
  return at + length;
}

// Ends of the members' parts of a tensor's bytes.
Result<std::vector<std::size_t>> Cuts(const Tensor& tensor, std::span<const std::int64_t> items,
                                      std::int64_t total) {
  const auto wrong = [&] {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("output '{}' of shape [{}], {} bytes, is not of {} items", tensor.name,
                            fmt::join(tensor.shape, ","), tensor.bytes.size(), total));
  };
  if (tensor.shape.empty() || tensor.shape.front() != total) return wrong();
  std::vector<std::size_t> ends;
  if (tensor.type != DataType::kBytes) {
    const std::size_t item = tensor.bytes.size() / static_cast<std::size_t>(total);
    std::size_t end = 0;
    for (const std::int64_t count : items) {
      ends.push_back(end += item * static_cast<std::size_t>(count));
    }
    return ends;
  }
  const Result<std::size_t> elements = kserve::CountOf(std::span(tensor.shape).subspan(1));
  if (!elements) return wrong();
  std::size_t at = 0;
  for (const std::int64_t count : items) {
    for (std::size_t i = 0; i < *elements * static_cast<std::size_t>(count); ++i) {
      const std::optional<std::size_t> after = AfterText(tensor.bytes, at);
      if (!after) return wrong();
      at = *after;
    }
    ends.push_back(at);
  }
  if (at != tensor.bytes.size()) return wrong();
  return ends;
}

}  // namespace

Result<Member> CheckMember(const kserve::ModelMetadata& model,
                           const kserve::InferRequest& request) {
  for (const Tensor& input : request.inputs) {
    if (Has(model.inputs, input.name)) continue;
    return Refuse(fmt::format("{} is no input of model '{}', which takes {}", Quoted(input.name),
                              model.name, Names(model.inputs)));
  }
  for (const kserve::RequestedOutput& output : request.outputs) {
    if (Has(model.outputs, output.name)) continue;
    return Refuse(fmt::format("{} is no output of model '{}', which has {}", Quoted(output.name),
                              model.name, Names(model.outputs)));
  }
  Member member;
  for (const TensorMetadata& declared : model.inputs) {
    Result<Tensor> input = CheckInput(model, declared, request);
    if (!input) return Fail(input.error());
    member.inputs.push_back(std::move(*input));
  }
  if (model.max_batch == 0) return member;
  member.items = member.inputs.front().shape.front();
  for (const Tensor& input : member.inputs) {
    if (input.shape.front() == member.items) continue;
    return Refuse(fmt::format("input '{}' has {} items, but '{}' has {}", input.name,
                              input.shape.front(), member.inputs.front().name, member.items));
  }
  if (member.items < 1 || member.items > model.max_batch) {
    return Refuse(fmt::format("the request has {} items; model '{}' takes 1 to {}", member.items,
                              model.name, model.max_batch));
  }
  return member;
}

std::vector<std::vector<std::size_t>> Group(std::span<const Member> members, int max_batch) {
  std::vector<std::vector<std::size_t>> groups;
  std::vector<std::int64_t> items;  // Of each group.
  for (std::size_t m = 0; m < members.size(); ++m) {
    std::size_t g = max_batch == 0 ? groups.size() : 0;
    while (g < groups.size() && (items[g] + members[m].items > max_batch ||
                                 !SameButFirst(members[groups[g].front()], members[m]))) {
      ++g;
    }
    if (g == groups.size()) {
      groups.emplace_back();
      items.push_back(0);
    }
    groups[g].push_back(m);
    items[g] += members[m].items;
  }
  return groups;
}

Joined Join(std::span<const Member* const> members) {
  Joined joined{.inputs = members.front()->inputs, .storage = {}};
  if (members.size() == 1) return joined;
  for (std::size_t i = 0; i < joined.inputs.size(); ++i) {
    Tensor& all = joined.inputs[i];
    std::size_t bytes = 0;
    all.shape.front() = 0;
    for (const Member* member : members) {
      bytes += member->inputs[i].bytes.size();
      all.shape.front() += member->items;
    }
    const std::shared_ptr<char[]> room = AllocateBytes(bytes);
    char* to = room.get();
    for (const Member* member : members) {
      to = std::copy(member->inputs[i].bytes.begin(), member->inputs[i].bytes.end(), to);
    }
    all.bytes = {room.get(), bytes};
    joined.storage.push_back(room);
  }
  return joined;
}

Result<std::vector<std::vector<Output>>> Split(std::span<const Output> outputs,
                                               std::span<const std::int64_t> items) {
  std::vector<std::vector<Output>> parts(items.size());
  if (items.size() == 1) {
    parts.front().assign(outputs.begin(), outputs.end());
    return parts;
  }
  const std::int64_t total = std::accumulate(items.begin(), items.end(), std::int64_t{0});
  for (const Output& output : outputs) {
    const Result<std::vector<std::size_t>> cuts = Cuts(output.tensor, items, total);
    if (!cuts) return Fail(cuts.error());
    std::size_t from = 0;
    for (std::size_t m = 0; m < items.size(); ++m) {
      Output& part = parts[m].emplace_back(output);
      part.tensor.shape.front() = items[m];
      part.tensor.bytes = output.tensor.bytes.substr(from, (*cuts)[m] - from);
      from = (*cuts)[m];
    }
  }
  return parts;
}

}  // namespace divvy::engine
