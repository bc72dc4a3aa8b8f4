#include "engine/execute.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/batch.h"
#include "engine/classify.h"
#include "kserve/http_infer.h"
#include "kserve/status.h"

namespace divvy::engine {
namespace {

// A question that can run.
struct Ready {
  std::size_t index;  // Among the questions.
  kserve::HttpInfer infer;
};

Duration Now() { return std::chrono::steady_clock::now().time_since_epoch(); }

// What an engine gets wrong is no reason to come back later, unlike a worker that is not up yet.
Error AsEngineFault(Error error) {
  if (error.code != ErrorCode::kInvalidArgument) error.code = ErrorCode::kAborted;
  return error;
}

// The outputs that the request wants, as it wants them.
Result<std::vector<Output>> Wanted(const std::vector<Output>& all,
                                   const kserve::InferRequest& request, bool batched) {
  if (request.outputs.empty()) return all;
  std::vector<Output> wanted;
  for (const kserve::RequestedOutput& asked : request.outputs) {
    const auto output = std::find_if(all.begin(), all.end(), [&](const Output& candidate) {
      return candidate.tensor.name == asked.name;
    });
    if (output == all.end()) continue;  // CheckMember has refused these.
    const kserve::Parameter* const classes = kserve::Find(asked.parameters, "classification");
    if (classes == nullptr) {
      wanted.push_back(*output);
      continue;
    }
    std::int64_t most = 0;
    if (const auto* number = std::get_if<std::int64_t>(classes)) most = *number;
    if (const auto* number = std::get_if<std::uint64_t>(classes)) {
      most = static_cast<std::int64_t>(std::min<std::uint64_t>(*number, INT64_MAX));
    }
    if (most < 1) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("classification of output '{}' must be a whole number of at least 1",
                              asked.name));
    }
    Result<Output> classified = Classify(*output, static_cast<std::size_t>(most), batched);
    if (!classified) return Fail(classified.error());
    wanted.push_back(std::move(*classified));
  }
  return wanted;
}

Result<net::HttpAnswer> Encode(const kserve::ModelMetadata& model,
                               const kserve::InferRequest& request,
                               const std::vector<Output>& outputs) {
  Result<std::vector<Output>> wanted = Wanted(outputs, request, model.max_batch > 0);
  if (!wanted) return Fail(wanted.error());
  // The answer's slices keep their tensors alive, until the last of them is sent.
  const auto owner = std::make_shared<const std::vector<Output>>(std::move(*wanted));
  kserve::InferResponse response{.model = model.name,
                                 .version = model.versions.front(),
                                 .id = request.id,
                                 .parameters = {},
                                 .outputs = {}};
  for (const Output& output : *owner) response.outputs.push_back(output.tensor);
  Result<kserve::HttpMessage> message = kserve::EncodeHttpResponse(response, request);
  if (!message) return Fail(message.error());

  net::HttpAnswer answer;
  answer.headers.emplace_back("Content-Type",
                              message->binary ? "application/octet-stream" : "application/json");
  if (message->binary) {
    answer.headers.emplace_back("Inference-Header-Content-Length",
                                fmt::format("{}", message->head.size()));
  }
  answer.body.emplace_back(std::move(message->head));
  for (const std::string_view tensor : message->tensors) answer.body.emplace_back(owner, tensor);
  return answer;
}

// One run, from a group of members to answers. `begin`: since when its inputs are worked on.
RunRecord RunGroup(Engine& engine, std::span<const Ready> ready, std::span<const Member> members,
                   const std::vector<std::size_t>& group, Duration begin,
                   std::vector<net::HttpAnswer>& answers) {
  std::vector<const Member*> joining;
  std::vector<std::int64_t> items;
  RunRecord record{.times = {}, .requests = group.size()};
  for (const std::size_t m : group) {
    joining.push_back(&members[m]);
    items.push_back(members[m].items);
    record.items += members[m].items;
  }
  const Joined joined = Join(joining);
  const Duration joined_at = Now();
  Result<std::vector<Output>> outputs = engine.Run(joined.inputs);
  const Duration ran_at = Now();
  record.held_back = engine.held_back().value_or(Duration(0));
  Result<std::vector<std::vector<Output>>> parts =
      outputs ? Split(*outputs, items)
              : Result<std::vector<std::vector<Output>>>(Fail(outputs.error()));
  for (std::size_t i = 0; i < group.size(); ++i) {
    const Ready& asked = ready[group[i]];
    Result<net::HttpAnswer> answer =
        parts ? Encode(engine.description().metadata, asked.infer.request, (*parts)[i])
              : Result<net::HttpAnswer>(Fail(AsEngineFault(parts.error())));
    if (!answer) ++record.failed;
    answers[asked.index] = answer ? std::move(*answer) : ErrorAnswer(answer.error());
  }
  record.times = {.input = joined_at - begin,
                  .infer = ran_at - joined_at + record.held_back,
                  .output = Now() - ran_at};
  for (const std::size_t m : group) {
    AddRunHeaders(answers[ready[m].index], record.times, record.items);
  }
  return record;
}

}  // namespace

net::HttpAnswer ErrorAnswer(const Error& error) {
  return {.status = kserve::HttpStatusOf(error.code),
          .headers = {{"Content-Type", "application/json"}},
          .body = {net::Slice(kserve::ErrorJson(error.message))}};
}

void AddRunHeaders(net::HttpAnswer& answer, const RunTimes& times, std::int64_t items) {
  const auto us = [](Duration time) { return (time.count() + 500) / 1000; };
  answer.headers.emplace_back("divvy-compute-us", fmt::format("{} {} {}", us(times.input),
                                                              us(times.infer), us(times.output)));
  answer.headers.emplace_back("divvy-batch-items", fmt::format("{}", items));
}

Execution Execute(Engine& engine, std::span<const Question> questions) {
  Duration begin = Now();
  const kserve::ModelMetadata& model = engine.description().metadata;
  Execution execution;
  execution.answers.resize(questions.size());
  std::vector<Ready> ready;
  std::vector<Member> members;
  const auto refuse = [&](std::size_t index, const Error& error) {
    execution.answers[index] = ErrorAnswer(error);
    AddRunHeaders(execution.answers[index], {}, 0);
    ++execution.refused;
  };
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const Question& question = questions[i];
    if (question.fault) {
      refuse(i, *question.fault);
      continue;
    }
    Result<kserve::HttpInfer> infer = kserve::DecodeHttpRequest(
        question.body.view(), question.header_length, kserve::Depth::kFull, &model);
    if (!infer) {
      refuse(i, infer.error());
      continue;
    }
    Result<Member> member = CheckMember(model, infer->request);
    if (!member) {
      refuse(i, member.error());
      continue;
    }
    ready.push_back({.index = i, .infer = std::move(*infer)});
    members.push_back(std::move(*member));
  }
  for (const std::vector<std::size_t>& group : Group(members, model.max_batch)) {
    execution.runs.push_back(RunGroup(engine, ready, members, group, begin, execution.answers));
    execution.held_back += execution.runs.back().held_back;
    begin = Now();
  }
  return execution;
}

}  // namespace divvy::engine
