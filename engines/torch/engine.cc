// TorchScript by libtorch, as an engine of divvy-worker (divvy_engine.h).
//
// libtorch throws; nothing of that leaves this file's entry points.

#include <torch/script.h>
#include <torch/version.h>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "divvy_engine.h"
#include "model.h"

namespace {

using divvy::torch_engine::Model;
using divvy::torch_engine::Spec;

// Thrown for what the client, or the command line, got wrong.
using divvy::torch_engine::BadInput;

std::vector<Spec> ToSpecs(const divvy_tensor_spec* specs, uint32_t count) {
  std::vector<Spec> read;
  for (uint32_t i = 0; i < count; ++i) {
    read.push_back({specs[i].name, specs[i].type, {specs[i].dims, specs[i].dims + specs[i].rank}});
  }
  return read;
}

std::vector<divvy_tensor_spec> FromSpecs(const std::vector<Spec>& specs) {
  std::vector<divvy_tensor_spec> written;
  for (const Spec& spec : specs) {
    written.push_back(
        {spec.name.c_str(), spec.type, static_cast<int32_t>(spec.dims.size()), spec.dims.data()});
  }
  return written;
}

void Say(const char* text, char* error, size_t error_size) {
  // libtorch's messages go on for pages: the first line has the reason; where the interpreter
  // failed, the last.
  std::string all = text;
  all.erase(all.find_last_not_of(" \n") + 1);
  const bool last = all.starts_with("The following operation failed");
  const std::string line = last ? all.substr(all.rfind('\n') + 1) : all.substr(0, all.find('\n'));
  std::snprintf(error, error_size, "%s", line.c_str());
}

template <typename Call>
int Guarded(char* error, size_t error_size, Call call) {
  try {
    call();
    return DIVVY_OK;
  } catch (const BadInput& bad) {
    Say(bad.what(), error, error_size);
    return DIVVY_BAD_INPUT;
  } catch (const c10::Error& failure) {
    Say(failure.what_without_backtrace(), error, error_size);
  } catch (const std::exception& failure) {
    Say(failure.what(), error, error_size);
  }
  return DIVVY_FAILED;
}

}  // namespace

struct divvy_engine_instance {
  std::unique_ptr<Model> model;
  std::vector<divvy_tensor_spec> inputs;
  std::vector<divvy_tensor_spec> outputs;
  divvy_engine_description description;
};

namespace {

int Create(const divvy_engine_config* config, divvy_engine_instance** instance, char* error,
           size_t error_size) {
  return Guarded(error, error_size, [&] {
    divvy::torch_engine::Settings settings{
        .artifact = config->artifact,
        .device = config->device,
        .max_batch = config->max_batch,
        .threads = config->threads,
        .inputs = ToSpecs(config->inputs, config->input_count),
        .outputs = ToSpecs(config->outputs, config->output_count),
    };
    for (uint32_t i = 0; i < config->option_count; ++i) {
      settings.Set(config->options[i].key, config->options[i].value);
    }
    auto made = std::make_unique<divvy_engine_instance>();
    made->model = std::make_unique<Model>(std::move(settings));
    made->inputs = FromSpecs(made->model->inputs());
    made->outputs = FromSpecs(made->model->outputs());
    made->description = {"pytorch_libtorch",
                         "pytorch",
                         config->max_batch,
                         made->inputs.data(),
                         static_cast<uint32_t>(made->inputs.size()),
                         made->outputs.data(),
                         static_cast<uint32_t>(made->outputs.size())};
    *instance = made.release();
  });
}

const divvy_engine_description* Describe(divvy_engine_instance* instance) {
  return &instance->description;
}

int Run(divvy_engine_instance* instance, const divvy_tensor* inputs, uint32_t input_count,
        divvy_sink* sink, char* error, size_t error_size) {
  return Guarded(error, error_size, [&] { instance->model->Run(inputs, input_count, *sink); });
}

void Destroy(divvy_engine_instance* instance) {
  char ignored[64];
  // Destructors of CUDA things may throw where the device has gone.
  Guarded(ignored, sizeof ignored, [&] { delete instance; });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const divvy_engine_functions* divvy_engine(void) {
  static const divvy_engine_functions functions = {DIVVY_ENGINE_ABI, Create, Describe, Run,
                                                   Destroy};
  return &functions;
}
