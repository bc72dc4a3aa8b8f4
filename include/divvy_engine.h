#pragma once

/* What a model runs on, for divvy-worker: a shared library with one exported function,
 *
 *   const divvy_engine_functions* divvy_engine(void);
 *
 * In C, and C++. A worker loads one engine, makes one instance of it, and calls it from one thread
 * only, the same from create to destroy. Nothing of the config or of a run's inputs may be kept
 * after the call returns. The worker is its own process: an engine may use what it likes, but must
 * not fork, exit, or change signal handlers.
 *
 * docs/formats/engine.md has an example.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when something of this header changes its meaning. A worker loads engines of its own
 * number only. */
#define DIVVY_ENGINE_ABI 1u

/* Element types, by Triton's numbers. Data are little-endian, row-major and packed. A BOOL is a
 * byte, 0 or 1. An element of BYTES is its length, 32 bits, and that many bytes. */
enum {
  DIVVY_BOOL = 1,
  DIVVY_UINT8 = 2,
  DIVVY_UINT16 = 3,
  DIVVY_UINT32 = 4,
  DIVVY_UINT64 = 5,
  DIVVY_INT8 = 6,
  DIVVY_INT16 = 7,
  DIVVY_INT32 = 8,
  DIVVY_INT64 = 9,
  DIVVY_FP16 = 10,
  DIVVY_FP32 = 11,
  DIVVY_FP64 = 12,
  DIVVY_BYTES = 13,
  DIVVY_BF16 = 14
};

/* What a call returns. */
enum {
  DIVVY_OK = 0,
  DIVVY_BAD_INPUT = 1, /* These inputs, or this config, can never work: the client's mistake. */
  DIVVY_FAILED = 2     /* The engine failed; another try may work. */
};

/* An input or output of the model, as it is declared: without the batch dimension; -1 is any size.
 */
typedef struct divvy_tensor_spec {
  const char* name;
  int32_t type;
  int32_t rank;
  const int64_t* dims;
} divvy_tensor_spec;

/* A tensor of a batch. Where max_batch > 0 dims[0] is the batch's number of items. `data` are
 * `bytes` bytes, which the worker has checked to be what type and dims say, at any alignment. */
typedef struct divvy_tensor {
  const char* name;
  int32_t type;
  int32_t rank;
  const int64_t* dims;
  const void* data;
  uint64_t bytes;
} divvy_tensor;

typedef struct divvy_option {
  const char* key;
  const char* value;
} divvy_option;

typedef struct divvy_engine_config {
  uint32_t abi;         /* DIVVY_ENGINE_ABI of the worker. */
  const char* model;    /* Its name, for messages. */
  const char* artifact; /* Path of the model's file; "" when none was given. */
  const char* device;   /* "cpu", "cuda:0" */
  int32_t max_batch;    /* Items of the largest batch; 0: the model has no batch dimension. */
  int32_t threads;      /* Threads to compute with; 0: the engine's choice. */
  const divvy_tensor_spec* inputs; /* As declared; none: the engine must know them itself. */
  uint32_t input_count;
  const divvy_tensor_spec* outputs;
  uint32_t output_count;
  const divvy_option* options; /* What --option said, for this engine alone. */
  uint32_t option_count;
} divvy_engine_config;

/* What an instance runs. Belongs to it, and does not change. */
typedef struct divvy_engine_description {
  const char* platform; /* As model metadata say it: "pytorch_libtorch". */
  const char* backend;  /* As the model config says it: "pytorch". */
  int32_t max_batch;    /* At most the config's. */
  const divvy_tensor_spec* inputs;
  uint32_t input_count;
  const divvy_tensor_spec* outputs;
  uint32_t output_count;
} divvy_engine_description;

/* Takes the outputs of one run. */
typedef struct divvy_sink divvy_sink;
struct divvy_sink {
  /* Room for an output: `bytes` bytes, aligned to 64, that the engine fills before run returns.
   * Name and dims are copied. NULL when they make no sense (an unknown name or type, bytes that are
   * not what type and dims say): then run should return DIVVY_FAILED. */
  void* (*output)(divvy_sink* sink, const char* name, int32_t type, int32_t rank,
                  const int64_t* dims, uint64_t bytes);
};

/* An instance; the engine knows what it is. */
typedef struct divvy_engine_instance divvy_engine_instance;

/* Where calls that fail say why: a text for people, cut to `error_size` with its final 0. */
typedef struct divvy_engine_functions {
  uint32_t abi; /* DIVVY_ENGINE_ABI of the engine. First, in all versions. */

  /* Loads the model and warms it up, so that the first run is as fast as any. */
  int (*create)(const divvy_engine_config* config, divvy_engine_instance** instance, char* error,
                size_t error_size);

  const divvy_engine_description* (*describe)(divvy_engine_instance* instance);

  /* Runs one batch: all declared inputs, in the order of describe. Hands every output to `sink`,
   * once, in any order; where max_batch > 0 their dims[0] is that of the inputs. */
  int (*run)(divvy_engine_instance* instance, const divvy_tensor* inputs, uint32_t input_count,
             divvy_sink* sink, char* error, size_t error_size);

  void (*destroy)(divvy_engine_instance* instance);
} divvy_engine_functions;

/* The one function to export. What it returns lives as long as the library is loaded. */
typedef const divvy_engine_functions* (*divvy_engine_entry)(void);

#ifdef __cplusplus
} /* extern "C" */
#endif
