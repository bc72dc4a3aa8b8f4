/* An engine for the tests, in C: the output y is twice the input x (FP32). What it is told to do
 * wrong stands in its option "fault". */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "divvy_engine.h"

struct divvy_engine_instance {
  char fault[32];
  int64_t width;
  divvy_tensor_spec input;
  divvy_tensor_spec output;
  divvy_engine_description description;
};

static int Has(const divvy_engine_instance* instance, const char* fault) {
  return strcmp(instance->fault, fault) == 0;
}

static int Create(const divvy_engine_config* config, divvy_engine_instance** instance, char* error,
                  size_t error_size) {
  divvy_engine_instance* const made = calloc(1, sizeof *made);
  if (!made) return DIVVY_FAILED;
  for (uint32_t i = 0; i < config->option_count; ++i) {
    if (strcmp(config->options[i].key, "fault") == 0) {
      snprintf(made->fault, sizeof made->fault, "%s", config->options[i].value);
    }
  }
  if (Has(made, "create")) {
    snprintf(error, error_size, "cannot read %s for %s on %s", config->artifact, config->model,
             config->device);
    free(made);
    return DIVVY_BAD_INPUT;
  }
  made->width =
      config->input_count == 1 && config->inputs[0].rank == 1 ? config->inputs[0].dims[0] : 2;
  made->input = (divvy_tensor_spec){"x", DIVVY_FP32, 1, &made->width};
  made->output = (divvy_tensor_spec){"y", Has(made, "describe") ? 99 : DIVVY_FP32, 1, &made->width};
  made->description =
      (divvy_engine_description){"test_double",
                                 "test",
                                 Has(made, "batch") ? config->max_batch + 1 : config->max_batch,
                                 &made->input,
                                 1,
                                 &made->output,
                                 1};
  *instance = made;
  return DIVVY_OK;
}

static const divvy_engine_description* Describe(divvy_engine_instance* instance) {
  return &instance->description;
}

static int Run(divvy_engine_instance* instance, const divvy_tensor* inputs, uint32_t input_count,
               divvy_sink* sink, char* error, size_t error_size) {
  const divvy_tensor* const x = &inputs[0];
  uint64_t bytes = x->bytes;
  int64_t dims[2];
  float* y;
  if (input_count != 1 || strcmp(x->name, "x") != 0 || x->rank != 2) return DIVVY_FAILED;
  if (Has(instance, "input") || Has(instance, "failed")) {
    snprintf(error, error_size, "no such luck");
    return Has(instance, "input") ? DIVVY_BAD_INPUT : DIVVY_FAILED;
  }
  if (Has(instance, "missing")) return DIVVY_OK;
  memcpy(dims, x->dims, sizeof dims);
  if (Has(instance, "short")) bytes -= 4;
  if (Has(instance, "huge")) {
    dims[0] = (int64_t)1 << 56;
    bytes = (uint64_t)dims[0] * (uint64_t)dims[1] * 4;
  }
  if (Has(instance, "items")) {
    dims[0] += 1;
    bytes += (uint64_t)dims[1] * 4;
  }
  y = sink->output(sink, Has(instance, "name") ? "z" : "y",
                   Has(instance, "type") ? DIVVY_INT32 : DIVVY_FP32, 2, dims, bytes);
  if (!y) return DIVVY_FAILED;
  memset(y, 0, bytes);
  for (uint64_t i = 0; i < x->bytes / 4; ++i) {
    float value;
    memcpy(&value, (const char*)x->data + 4 * i, sizeof value); /* At any alignment. */
    y[i] = 2 * value;
  }
  if (Has(instance, "twice")) {
    sink->output(sink, "y", DIVVY_FP32, 2, dims, bytes);
  }
  return DIVVY_OK;
}

static void Destroy(divvy_engine_instance* instance) { free(instance); }

const divvy_engine_functions* divvy_engine(void);
const divvy_engine_functions* divvy_engine(void) {
  static divvy_engine_functions functions = {DIVVY_ENGINE_ABI, Create, Describe, Run, Destroy};
  /* How a worker is told of an engine from another time. */
  functions.abi = getenv("DIVVY_TEST_ENGINE_ABI") ? 999 : DIVVY_ENGINE_ABI;
  return &functions;
}
