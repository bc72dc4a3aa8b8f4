#include "workload/fleet_serve.h"

#include <fmt/format.h>

#include <array>

#include "base/text_safety.h"

namespace divvy::workload {
namespace {

constexpr std::array<std::string_view, 5> kServeKeys = {"engine", "artifact", "inputs", "outputs",
                                                        "url"};
constexpr std::array<std::string_view, 3> kTensorKeys = {"name", "type", "dims"};
// Text is left out: no engine of ours takes it.
constexpr std::array<std::string_view, 13> kTypes = {"BOOL", "UINT8", "UINT16", "UINT32", "UINT64",
                                                     "INT8", "INT16", "INT32",  "INT64",  "FP16",
                                                     "BF16", "FP32",  "FP64"};
constexpr IntRange kDims{-1, 1 << 24};
constexpr std::size_t kMaxTensors = 64;
constexpr std::size_t kMaxDims = 8;

FleetTensor ReadTensor(YamlReader& reader, const YamlNode& node, std::string_view what) {
  FleetTensor tensor;
  if (!reader.ExpectMapping(node, what, kTensorKeys)) return tensor;
  if (const YamlNode* name = reader.Require(node, "name", what)) {
    tensor.name = reader.Name("name", *name);
    if (tensor.name.find_first_of(":,") != std::string::npos) {
      reader.Complain(name->line,
                      fmt::format("name: {} has a colon or comma in it", Quoted(tensor.name)));
    }
  }
  if (const YamlNode* type = node.Find("type")) tensor.type = reader.Choice("type", *type, kTypes);
  if (const YamlNode* dims = reader.Require(node, "dims", what)) {
    const auto items = reader.List("dims", *dims);
    if (items.size() > kMaxDims) {
      reader.Complain(dims->line, fmt::format("dims: {}; at most {}", items.size(), kMaxDims));
    }
    for (const YamlNode& item : items) {
      if (!reader.ok()) break;
      tensor.dims.push_back(reader.Integer("dims", item, kDims));
      if (tensor.dims.back() == 0) {
        reader.Complain(item.line,
                        "dims: 0 makes an empty tensor; -1 is for a dimension of any size");
      }
    }
  }
  return tensor;
}

std::vector<FleetTensor> ReadTensors(YamlReader& reader, const YamlNode& node, std::string_view key,
                                     std::string_view what) {
  std::vector<FleetTensor> tensors;
  const auto items = reader.List(key, node);
  if (reader.ok() && (items.empty() || items.size() > kMaxTensors)) {
    reader.Complain(node.line, fmt::format("{}: {}; 1 to {}", key, items.size(), kMaxTensors));
  }
  for (const YamlNode& item : items) {
    if (!reader.ok()) break;
    tensors.push_back(ReadTensor(reader, item, what));
  }
  return tensors;
}

}  // namespace

FleetServe ReadServe(YamlReader& reader, const YamlNode& node) {
  FleetServe serve;
  serve.line = node.line;
  if (!reader.ExpectMapping(node, "serve", kServeKeys)) return serve;
  if (const YamlNode* artifact = node.Find("artifact")) {
    serve.artifact = FileRef{reader.Path("artifact", *artifact), artifact->line};
    serve.engine = "torch";
  }
  if (const YamlNode* engine = node.Find("engine")) serve.engine = reader.Path("engine", *engine);
  if (const YamlNode* inputs = node.Find("inputs")) {
    serve.inputs = ReadTensors(reader, *inputs, "inputs", "an input");
  }
  if (const YamlNode* outputs = node.Find("outputs")) {
    serve.outputs = ReadTensors(reader, *outputs, "outputs", "an output");
  }
  if (const YamlNode* url = node.Find("url")) {
    serve.url = reader.Path("url", *url);
    const bool plain = serve.url.starts_with("http://") && serve.url.size() > 7;
    if (reader.ok() && !plain) {
      reader.Complain(url->line,
                      fmt::format("url: {} does not begin with http://, the only protocol "
                                  "that workers are asked in",
                                  Quoted(serve.url)));
    }
    if (node.Find("artifact") != nullptr || node.Find("engine") != nullptr) {
      reader.Complain(url->line,
                      "url: a model that another server runs has no engine or artifact here");
    }
  }
  if (reader.ok() && serve.engine == "torch" && !serve.artifact) {
    reader.Complain(node.line, "serve: the engine torch needs an artifact, a TorchScript file");
  }
  return serve;
}

}  // namespace divvy::workload
